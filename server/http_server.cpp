#include "server/http_server.h"

#include <httplib.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "api/error.h"
#include "core/base/log.h"
#include "server/body_reader.h"
#include "server/connection.h"
#include "server/connection_pool.h"

namespace promptcached::server {
namespace {

// Request line and headers together. The library's own limits on single lines (8 KiB) act before this one.
constexpr std::size_t kMaxHeadBytes = 64 * 1024;

// ---- What cpp-httplib sees of a connection ----

// Methods are declared without `override` because the set of virtual ones differs between the library's versions.
// NOLINTBEGIN(modernize-use-override,cppcoreguidelines-explicit-virtual-functions)
class LibraryStream final : public httplib::Stream {
 public:
  explicit LibraryStream(Connection& connection) : connection_(connection) {}
  bool is_readable() const { return true; }
  bool is_writable() const { return !connection_.write_failed(); }
  bool wait_readable() const { return true; }
  bool wait_writable() const { return !connection_.write_failed(); }
  time_t duration() const { return 0; }
  ssize_t read(char* data, size_t size) {
    const std::size_t count = connection_.read(data, size);
    return count > 0 ? static_cast<ssize_t>(count) : -1;
  }
  ssize_t write(const char* data, size_t size) {
    return connection_.write({data, size}) ? static_cast<ssize_t>(size) : -1;
  }
  // The library asks for the socket only to refuse descriptors that select() cannot take; it never waits on this one.
  socket_t socket() const { return INVALID_SOCKET; }
  void get_remote_ip_and_port(std::string&, int&) const {}
  void get_local_ip_and_port(std::string&, int&) const {}

 private:
  Connection& connection_;
};
// NOLINTEND(modernize-use-override,cppcoreguidelines-explicit-virtual-functions)

// The library's server without its listener and threads: one request at a time, on a stream of ours.
class Library final : public httplib::Server {
 public:
  Library() {
    svr_sock_ = 0;              // content providers stop when this is INVALID_SOCKET; it is used for nothing else here
    set_payload_max_length(0);  // bodies are read by read_body()
  }

  // False when the connection is of no further use. The signature changed in 0.17.
  template <typename Stream>
  bool serve(Stream& stream, bool close, bool& closed, const std::function<void(httplib::Request&)>& head_complete) {
    if constexpr (requires { this->process_request(stream, close, closed, head_complete); }) {
      return this->process_request(stream, close, closed, head_complete);
    } else {
      return this->process_request(stream, std::string(), 0, std::string(), 0, close, closed, head_complete);
    }
  }
};

struct Refusal {
  int status = 400;
  Error error;
};

// One request and its response. Lives on the thread that serves the connection.
struct Exchange {
  Exchange(Connection& its_connection, const std::string& client, bool close)
      : connection(its_connection), remote_address(client), close_after(close) {}

  Connection& connection;
  const std::string& remote_address;
  bool close_after;  // whatever the client wants
  bool expects_continue = false;
  bool body_read = false;
  std::optional<Refusal> refusal;  // found in the head
  BodyFraming framing;
  bool answered = false;  // `response` is what the router made
  api::HttpResponse response;
};

// The library passes nothing through to its handlers, but calls them on the thread that serves the connection.
thread_local Exchange* current_exchange = nullptr;

api::NameValues to_pairs(const httplib::Headers& headers) { return {headers.begin(), headers.end()}; }

class SocketBodyWriter final : public api::BodyWriter {
 public:
  SocketBodyWriter(Connection& connection, httplib::DataSink& sink) : connection_(connection), sink_(sink) {}
  bool write(std::string_view data) override { return sink_.write(data.data(), data.size()) && connection_.flush(); }

 private:
  Connection& connection_;
  httplib::DataSink& sink_;
};

class SocketClient final : public api::ClientConnection {
 public:
  SocketClient(ConnectionWatcher& watcher, int socket) : watcher_(watcher), socket_(socket) {}
  std::unique_ptr<api::DisconnectWatch> watch(std::function<void()> gone) override {
    return watcher_.watch(socket_, std::move(gone));
  }

 private:
  ConnectionWatcher& watcher_;
  const int socket_;
};

// What is wrong, in our words, with a request that the library refuses with `status`.
Refusal library_refusal(int status, const Connection& connection) {
  const auto malformed = [](std::string message) { return make_error(ErrorCode::kInvalidField, std::move(message)); };
  if (connection.read_failure() == Connection::ReadFailure::kLimit) {
    return {431, malformed("the request's head is larger than " + std::to_string(kMaxHeadBytes) + " bytes")};
  }
  if (connection.read_failure() == Connection::ReadFailure::kTimeout) {
    return {408, malformed("the request's head did not arrive in time")};
  }
  switch (status) {
    case 414:
      return {414, malformed("the request's target is longer than 8192 bytes")};
    case 416:
      return {416, malformed("the Range header is malformed")};
    default:
      return status >= 500 ? Refusal{500, make_error(ErrorCode::kInternal, "internal error")}
                           : Refusal{400, malformed("the request is not well-formed HTTP")};
  }
}

// A whole response, for clients that are refused before the library comes into play.
std::string refusal_text(int status, std::string_view reason, const Error& error) {
  const std::string id = api::request_id(std::nullopt);
  api::HttpResponse response = api::error_response(status, error, id);
  response.headers.insert(response.headers.end(), {{"Content-Type", response.content_type},
                                                   {"Connection", "close"},
                                                   {"X-Request-Id", id},
                                                   {"Content-Length", std::to_string(response.body.size())}});
  std::string text = "HTTP/1.1 " + std::to_string(status) + " ";
  text.append(reason).append("\r\n");
  for (const auto& [name, value] : response.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  return text.append("\r\n").append(response.body);
}

}  // namespace

struct HttpServer::Impl {
  Impl(const Address& address, const Options& server_options, const api::Router& request_router,
       ConnectionWatcher& connection_watcher, const TlsContext* tls)
      : options(server_options), router(request_router), watcher(connection_watcher) {
    configure_library();
    connections = std::make_unique<ConnectionPool>(
        address, ConnectionPool::Options{options.max_connections, options.idle_time, options.write_time}, tls,
        ConnectionPool::Handlers{[this](Connection& connection, const std::string& client, bool closing) {
                                   return serve_request(connection, client, closing);
                                 },
                                 [](Connection& connection) {
                                   const Error error =
                                       make_error(ErrorCode::kNotReady,
                                                  "the server has no room for more connections; try again later");
                                   connection.write(refusal_text(503, "Service Unavailable", error));
                                 }});
  }

  ConnectionPool::After serve_request(Connection& connection, const std::string& client, bool closing) {
    Exchange exchange(connection, client, closing);
    connection.limit_reads(kMaxHeadBytes, Connection::Clock::now() + options.read_time);
    LibraryStream stream(connection);
    bool client_closes = false;
    current_exchange = &exchange;
    const bool usable = library.serve(stream, exchange.close_after, client_closes,
                                      [&exchange](httplib::Request& request) { inspect_head(exchange, request); });
    current_exchange = nullptr;
    if (!exchange.answered && connection.read_failure() == Connection::ReadFailure::kLimit) {
      connection.write(refusal_text(431, "Request Header Fields Too Large", library_refusal(400, connection).error));
    }
    const bool delivered = connection.flush();
    if (exchange.response.sent) {
      exchange.response.sent(delivered);
    }
    if (!exchange.body_read) {
      return ConnectionPool::After::kLinger;
    }
    return usable && delivered && !client_closes && !exchange.close_after ? ConnectionPool::After::kKeep
                                                                          : ConnectionPool::After::kClose;
  }

  // Called by the library when it has the head: the one place where the request may be changed. What concerns the body
  // is taken out of it, since we read the body ourselves; ranges and compression are not for what we serve.
  static void inspect_head(Exchange& exchange, httplib::Request& request) {
    const Result<BodyFraming> framing = body_framing(to_pairs(request.headers));
    if (framing) {
      exchange.framing = *framing;
    } else {
      exchange.refusal = Refusal{400, framing.error()};
    }
    exchange.body_read = framing.ok() && !framing->has_body();
    if (const auto expect = request.headers.find("Expect"); expect != request.headers.end()) {
      exchange.expects_continue = true;
      if (!api::same_ignoring_case(expect->second, "100-continue")) {
        exchange.refusal = Refusal{417, make_error(ErrorCode::kInvalidField, "Expect knows 100-continue alone")};
      }
    }
    for (const char* name : {"Content-Length", "Transfer-Encoding", "Expect", "Accept-Encoding"}) {
      request.headers.erase(name);
    }
    request.ranges.clear();
  }

  void configure_library() {
    library.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response, *current_exchange);
      return httplib::Server::HandlerResponse::Handled;
    });
    // Called for every status from 400 on, ours included.
    library.set_error_handler(
        httplib::Server::HandlerWithResponse([this](const httplib::Request& request, httplib::Response& response) {
          if (current_exchange->answered) {
            return httplib::Server::HandlerResponse::Unhandled;
          }
          answer_library_error(request, response, *current_exchange);
          return httplib::Server::HandlerResponse::Handled;
        }));
    library.set_post_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      finish_headers(request, response, *current_exchange);
    });
  }

  api::HttpRequest to_api_request(const httplib::Request& request, const Exchange& exchange) const {
    api::HttpRequest converted;
    converted.method = request.method;
    converted.path = request.path;
    converted.query = {request.params.begin(), request.params.end()};
    converted.headers = to_pairs(request.headers);
    converted.request_id = api::request_id(converted.header("X-Request-Id"));
    converted.remote_address = exchange.remote_address;
    return converted;
  }

  void answer(const httplib::Request& request, httplib::Response& response, Exchange& exchange) {
    api::HttpRequest converted = to_api_request(request, exchange);
    SocketClient client(watcher, exchange.connection.fd());
    converted.client = &client;
    converted.read_body = [this, &exchange](std::string& body) { return load_body(exchange, body); };
    exchange.response = exchange.refusal ? router.refuse(converted, exchange.refusal->status, exchange.refusal->error)
                                         : router.handle(converted);
    exchange.answered = true;
    if (!exchange.body_read) {
      exchange.close_after = true;  // what comes next on this connection is a body nobody wanted
    }
    send(request, response, exchange);
  }

  Status load_body(Exchange& exchange, std::string& body) const {
    if (exchange.framing.content_length > options.max_body_bytes) {
      return read_body(exchange.connection, exchange.framing, options.max_body_bytes, options.read_time, body);
    }
    if (exchange.expects_continue && exchange.framing.has_body()) {
      exchange.connection.write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    Status status = read_body(exchange.connection, exchange.framing, options.max_body_bytes, options.read_time, body);
    exchange.body_read = status.ok();
    return status;
  }

  void answer_library_error(const httplib::Request& request, httplib::Response& response, Exchange& exchange) {
    const Refusal refusal = library_refusal(response.status, exchange.connection);
    exchange.response = router.refuse(to_api_request(request, exchange), refusal.status, refusal.error);
    exchange.answered = true;
    exchange.close_after = true;
    response.headers.clear();
    send(request, response, exchange);
  }

  static void send(const httplib::Request& request, httplib::Response& response, Exchange& exchange) {
    api::HttpResponse& from = exchange.response;
    response.status = from.status;
    for (const auto& [name, value] : from.headers) {
      response.set_header(name, value);
    }
    if (from.stream) {
      send_stream(request, response, exchange);
    } else if (!from.content_type.empty()) {
      response.body = std::move(from.body);
      response.set_header("Content-Type", from.content_type);
    }
  }

  static void send_stream(const httplib::Request& request, httplib::Response& response, Exchange& exchange) {
    auto provider = [&exchange](size_t, httplib::DataSink& sink) {
      try {
        SocketBodyWriter writer(exchange.connection, sink);
        exchange.response.stream(writer);
        sink.done();
        return !exchange.connection.write_failed();
      } catch (const std::exception& fault) {  // the head is out already: all that is left is to end the connection
        log::error("a stream ended by an exception: {}", fault.what());
        return false;
      }
    };
    if (request.version == "HTTP/1.0") {
      // No chunks there: the end of the connection is the end of the body. nginx speaks 1.0 to us unless told
      // otherwise.
      exchange.close_after = true;
      response.set_content_provider(exchange.response.content_type, provider);
    } else {
      response.set_chunked_content_provider(exchange.response.content_type, provider);
    }
  }

  // The last word on headers, after the library has added its own.
  static void finish_headers(const httplib::Request& request, httplib::Response& response, const Exchange& exchange) {
    response.headers.erase("Keep-Alive");
    response.headers.erase("Accept-Ranges");
    if (response.status == 204) {
      response.headers.erase("Content-Length");
    }
    if (exchange.close_after && !response.has_header("Connection")) {
      response.set_header("Connection", "close");
    } else if (request.version == "HTTP/1.0" && request.get_header_value("Connection") == "Keep-Alive") {
      response.set_header("Connection", "keep-alive");
    }
  }

  const Options options;
  const api::Router& router;
  ConnectionWatcher& watcher;
  Library library;                              // configured once, then read by many threads
  std::unique_ptr<ConnectionPool> connections;  // last: its threads use the rest
};

HttpServer::HttpServer(const Address& address, const Options& options, const api::Router& router,
                       ConnectionWatcher& watcher, const TlsContext* tls)
    : impl_(std::make_unique<Impl>(address, options, router, watcher, tls)) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->connections->port(); }

void HttpServer::close_after_responses() { impl_->connections->close_after_responses(); }

void HttpServer::stop(std::chrono::milliseconds grace) { impl_->connections->stop(grace); }

}  // namespace promptcached::server
