// The remote tier's client against real servers: Redis (single, with password, with TLS, a cluster) and S3.
#include "core/kv/tiers/remote_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/kv/tiers/real_servers.h"

namespace promptcached::kv {
namespace {

#ifndef __SANITIZE_THREAD__  // which cannot see how the Rust library's threads wait for each other

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A variable of the environment while it lives.
class Variable final {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

std::unique_ptr<RemoteStore> open_store(const std::string& uri, std::chrono::milliseconds timeout = 30s) {
  auto store = RemoteStore::open({.uri = uri, .timeout = timeout});
  INFO((store.ok() ? "" : store.error().message));
  REQUIRE(store.ok());
  return std::move(store).value();
}

// `size` bytes that differ from place to place and from seed to seed.
std::vector<std::byte> make_value(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> value(size);
  std::uint64_t state = seed + 1;
  for (std::size_t i = 0; i < size; i += sizeof(state)) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(value.data() + i, &state, std::min(sizeof(state), size - i));
  }
  return value;
}

void expect_value(RemoteStore& store, const std::string& name, const std::vector<std::byte>& value) {
  const auto found = store.read(name);
  INFO((found.ok() ? "" : found.error().message));
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  const auto bytes = (*found)->bytes();
  CHECK((bytes.size() == value.size() && std::equal(bytes.begin(), bytes.end(), value.begin())));
}

void expect_success(const Status& status) {
  INFO((status.ok() ? "" : status.error().message));
  REQUIRE(status.ok());
}

void expect_absent(RemoteStore& store, const std::string& name) {
  const auto found = store.read(name);
  INFO((found.ok() ? "" : found.error().message));
  REQUIRE(found.ok());
  CHECK_FALSE(found->has_value());
}

void write_and_read(RemoteStore& store, std::size_t largest) {
  expect_absent(store, "nothing");
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kMiB, largest}) {
    const std::vector<std::byte> value = make_value(size, size);
    expect_success(store.write("value", value));
    expect_value(store, "value", value);
  }
  expect_success(store.remove("value"));
  expect_absent(store, "value");
  expect_success(store.remove("value"));
}

void use_from_threads(RemoteStore& store) {
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&store, &wrong, thread] {
      const std::string name = "thread-" + std::to_string(thread);
      for (std::uint64_t round = 0; round < 4; ++round) {
        const std::vector<std::byte> value = make_value(kMiB + round * 1000, thread * 100 + round);
        const bool written = store.write(name, value).ok();
        const auto found = store.read(name);
        const bool same = found.ok() && found->has_value() && (*found)->bytes().size() == value.size() &&
                          std::equal(value.begin(), value.end(), (*found)->bytes().begin());
        wrong += written && same ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == 0);
}

// Runs `work`, which must fail with `code`, in about `limit` at most.
template <typename Work>
Error expect_failure(ErrorCode code, std::chrono::milliseconds limit, Work work) {
  const auto start = Clock::now();
  const auto result = work();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  REQUIRE_FALSE(result.ok());
  INFO(result.error().message << " after " << took.count() << " ms");
  CHECK(result.error().code == code);
  CHECK(took < limit + 5s);  // a machine that has other things to do
  return result.error();
}

void survive_a_restart(RemoteStore& store, ServerProcess& server, const std::function<void()>& prepare) {
  const std::vector<std::byte> value = make_value(kMiB, 1);
  expect_success(store.write("value", value));
  server.kill();
  expect_failure(ErrorCode::kInternal, 1s, [&] { return store.read("value"); });
  expect_failure(ErrorCode::kInternal, 1s, [&] { return store.write("value", value); });
  server.start();
  prepare();
  expect_absent(store, "value");  // it had it in memory alone
  expect_success(store.write("value", value));
  server.kill();
  server.start();
  prepare();
  expect_success(store.write("value", value));  // over a connection that the server has forgotten
  expect_value(store, "value", value);
}

void give_up_on_silence(RemoteStore& store, ServerProcess& server, std::chrono::milliseconds timeout) {
  const std::vector<std::byte> value = make_value(100, 1);
  expect_success(store.write("value", value));
  server.freeze();
  expect_failure(ErrorCode::kTimeout, timeout, [&] { return store.read("value"); });
  expect_failure(ErrorCode::kTimeout, timeout, [&] { return store.write("value", value); });
  expect_failure(ErrorCode::kTimeout, timeout, [&] { return store.remove("value"); });
  server.thaw();
  expect_success(store.write("other", value));
  expect_value(store, "other", value);
}

// ---- URIs ----

TEST_CASE("a URI is shown without its secrets", "[remote]") {
  const Variable region("AWS_REGION", "eu-central-1");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"redis://cache", "redis://cache:6379/0?prefix=promptcached:"},
      {"redis://cache:7000/3?prefix=kv.", "redis://cache:7000/3?prefix=kv."},
      {"rediss://user:s%3Acret@[::1]:7000", "rediss://[::1]:7000/0?prefix=promptcached:"},
      {"redis-cluster://:secret@a:1,b:2", "redis-cluster://a:1,b:2?prefix=promptcached:"},
      {"rediss-cluster://a:1", "rediss-cluster://a:1?prefix=promptcached:"},
      {"s3://bucket", "s3://bucket"},
      {"s3://bucket/some/prefix/?endpoint=http://127.0.0.1:9000&region=x",
       "s3://bucket/some/prefix?endpoint=http://127.0.0.1:9000"},
  };
  for (const auto& [uri, shown] : cases) {
    CHECK(open_store(uri)->describe() == shown);
  }
}

TEST_CASE("a URI that is none is refused with what to write, and without what may be secret", "[remote]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "redis://"},
      {"secret", "redis://"},
      {"http://secret", "redis://"},
      {"redis://", "names no host"},
      {"redis://:secret", "no host"},
      {"redis://user:secret", "no number"},
      {"redis://:secret@host:port", "no number"},
      {"redis://host:0", "no number"},
      {"redis://host:70000", "no number"},
      {"redis://[::1:secret", "no number"},
      {"redis://a:1,b:2", "redis-cluster://"},
      {"redis://host/secret", "database"},
      {"redis://:sec/ret@host", "no host"},
      {"redis://user:1/secret@host", "%2F"},
      {"redis://host?secret", "name=value"},
      {"redis://host?secret=1", "it takes prefix"},
      {"redis://:%ffsecret@host", "UTF-8"},
      {"redis-cluster://a:1,b:2/1", "one database"},
      {"s3://", "bucket"},
      {"s3://key:secret@bucket", "AWS_ACCESS_KEY_ID"},
      {"s3://bucket", "AWS_REGION"},
      {"s3://bucket?endpoint=secret", "endpoint"},
      {"s3://bucket?endpoint=http://u:secret@host", "endpoint"},
  };
  for (const auto& [uri, part] : cases) {
    const auto store = RemoteStore::open({.uri = uri});
    INFO(uri);
    REQUIRE_FALSE(store.ok());
    INFO(store.error().message);
    CHECK(store.error().code == ErrorCode::kInvalidField);
    CHECK(store.error().message.find(part) != std::string::npos);
    CHECK(store.error().message.find("secret") == std::string::npos);
  }
}

// ---- Redis ----

TEST_CASE("values go to Redis and come back", "[remote][redis]") {
  const RedisServer server;
  const auto store = open_store("redis://" + server.address());
  write_and_read(*store, 64 * kMiB);
  use_from_threads(*store);
}

TEST_CASE("a store needs no server until it is used", "[remote][redis]") {
  const auto store = open_store("redis://127.0.0.1:" + std::to_string(free_port()));
  expect_failure(ErrorCode::kInternal, 1s, [&] { return store->read("value"); });
}

TEST_CASE("prefixes and databases keep stores of one Redis apart", "[remote][redis]") {
  const RedisServer server;
  const auto store = open_store("redis://" + server.address());
  expect_success(store->write("value", make_value(10, 1)));
  expect_absent(*open_store("redis://" + server.address() + "?prefix=other:"), "value");
  expect_absent(*open_store("redis://" + server.address() + "/1"), "value");
  expect_value(*open_store("redis://" + server.address() + "/0?prefix=promptcached:"), "value", make_value(10, 1));
}

TEST_CASE("Redis's password comes from the URI or the environment, and is never shown", "[remote][redis]") {
  const RedisServer server({"--requirepass", "s3:cr@t/"});
  write_and_read(*open_store("redis://:s3%3Acr%40t%2F@" + server.address()), 64 * kMiB);
  {
    const Variable password("REDIS_PASSWORD", "s3:cr@t/");
    write_and_read(*open_store("redis://" + server.address()), 64 * kMiB);
  }
  const auto with_none = open_store("redis://" + server.address());
  expect_failure(ErrorCode::kInternal, 1s, [&] { return with_none->read("value"); });
  const auto with_wrong = open_store("redis://:wr0ng@" + server.address());
  const Error error = expect_failure(ErrorCode::kInternal, 1s, [&] { return with_wrong->read("value"); });
  CHECK(error.message.find("wr0ng") == std::string::npos);
  CHECK(error.message.find(server.address()) != std::string::npos);
}

TEST_CASE("Redis under TLS is used once its certificate is trusted", "[remote][redis]") {
  const TemporaryDirectory folder;
  run_command({"openssl",
               "req",
               "-x509",
               "-newkey",
               "ec",
               "-pkeyopt",
               "ec_paramgen_curve:prime256v1",
               "-nodes",
               "-days",
               "1",
               "-subj",
               "/CN=promptcached test",
               "-addext",
               "subjectAltName=IP:127.0.0.1",
               "-addext",
               "basicConstraints=critical,CA:FALSE",
               "-keyout",
               folder.file("key.pem"),
               "-out",
               folder.file("cert.pem")},
              folder.file("log"));
  const int tls_port = free_port();
  const RedisServer server({"--tls-port", std::to_string(tls_port), "--tls-cert-file", folder.file("cert.pem"),
                            "--tls-key-file", folder.file("key.pem"), "--tls-auth-clients", "no"});
  const std::string uri = "rediss://127.0.0.1:" + std::to_string(tls_port);
  const auto distrustful = open_store(uri);
  expect_failure(ErrorCode::kInternal, 5s, [&] { return distrustful->read("value"); });
  const Variable trusted("SSL_CERT_FILE", folder.file("cert.pem"));
  write_and_read(*open_store(uri), 64 * kMiB);
}

TEST_CASE("a Redis that went away is an error at once, and is used again when it is back", "[remote][redis]") {
  RedisServer server;
  const auto store = open_store("redis://" + server.address());
  survive_a_restart(*store, server.process(), [] {});
}

TEST_CASE("a Redis that answers nothing is given up after the timeout", "[remote][redis]") {
  RedisServer server;
  const auto store = open_store("redis://" + server.address(), 1s);
  give_up_on_silence(*store, server.process(), 1s);
}

TEST_CASE("a value that comes slowly has its time, and one that stops coming has not", "[remote][redis]") {
  const RedisServer server;
  const std::vector<std::byte> value = make_value(64 * kMiB, 1);
  expect_success(open_store("redis://" + server.address())->write("value", value));
  const SlowLine slow(server.port(), {.bytes_per_second = 32 * kMiB});  // 2 s
  expect_value(*open_store("redis://127.0.0.1:" + std::to_string(slow.port()), 1s), "value", value);
  const SlowLine stalling(server.port(), {.stall_after = kMiB});
  const auto store = open_store("redis://127.0.0.1:" + std::to_string(stalling.port()), 1s);
  expect_failure(ErrorCode::kTimeout, 5s, [&] { return store->read("value"); });
}

TEST_CASE("a Redis that is full says so", "[remote][redis]") {
  const RedisServer server({"--maxmemory", "4mb"});
  const auto store = open_store("redis://" + server.address());
  expect_success(store->write("small", make_value(10, 1)));
  const Error error =
      expect_failure(ErrorCode::kInternal, 1s, [&] { return store->write("large", make_value(8 * kMiB, 1)); });
  CHECK(error.message.find("maxmemory") != std::string::npos);
  expect_value(*store, "small", make_value(10, 1));
}

// Three masters; each node's bus is on a port of its own.
struct Cluster {
  std::vector<std::unique_ptr<RedisServer>> nodes;
  std::string hosts;

  Cluster() {
    std::vector<std::string> create = {"redis-cli", "--cluster-yes", "--cluster", "create"};
    for (int node = 0; node < 3; ++node) {
      nodes.push_back(std::make_unique<RedisServer>(
          std::vector<std::string>{"--cluster-enabled", "yes", "--cluster-port", std::to_string(free_port()),
                                   "--cluster-node-timeout", "2000"}));
      create.push_back(nodes.back()->address());
      hosts += (node > 0 ? "," : "") + nodes.back()->address();
    }
    const TemporaryDirectory folder;
    run_command(create, folder.file("log"));
  }
};

// The nodes have to agree first, on who is there and who has which names.
void wait_for_agreement(RemoteStore& store) {
  const auto end = Clock::now() + 30s;
  for (std::uint64_t i = 0; i < 8;) {
    if (store.write("value-" + std::to_string(i), make_value(1000, i)).ok()) {
      ++i;
      continue;
    }
    REQUIRE(Clock::now() < end);
    std::this_thread::sleep_for(200ms);
  }
}

TEST_CASE("values go to the nodes of a cluster and come back", "[remote][redis]") {
  Cluster cluster;
  const auto store = open_store("redis-cluster://" + cluster.hosts);
  wait_for_agreement(*store);
  write_and_read(*store, 64 * kMiB);
  use_from_threads(*store);
  // One node is enough to find the others, and names are spread over all.
  const auto by_one = open_store("redis-cluster://" + cluster.nodes[2]->address());
  for (std::uint64_t i = 0; i < 32; ++i) {
    expect_success(by_one->write("value-" + std::to_string(i), make_value(1000, i)));
    expect_value(*store, "value-" + std::to_string(i), make_value(1000, i));
  }
}

TEST_CASE("a cluster that lost a node fails in time, and is used again when it is back", "[remote][redis]") {
  Cluster cluster;
  const auto store = open_store("redis-cluster://" + cluster.hosts, 2s);
  wait_for_agreement(*store);
  cluster.nodes[0]->process().kill();
  int failed = 0;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto start = Clock::now();
    failed += store->write("value-" + std::to_string(i), make_value(1000, i)).ok() ? 0 : 1;
    CHECK(Clock::now() - start < 7s);
  }
  CHECK(failed > 0);
  cluster.nodes[0]->process().start();
  wait_for_agreement(*store);
}

// ---- S3 ----

// What S3's clients find in the environment.
struct Keys {
  Variable id{"AWS_ACCESS_KEY_ID", "test-id"};
  Variable secret{"AWS_SECRET_ACCESS_KEY", "test-s3cret"};
};

std::string s3_uri(const S3Server& server, const std::string& place = "bucket/some/prefix") {
  return "s3://" + place + "?region=us-east-1&endpoint=" + server.endpoint();
}

TEST_CASE("values go to S3 and come back", "[remote][s3]") {
  const Keys keys;
  const S3Server server;
  const auto store = open_store(s3_uri(server));
  write_and_read(*store, 16 * kMiB);  // moto is a Python program
  use_from_threads(*store);
  expect_success(store->write("value", make_value(10, 1)));
  expect_absent(*open_store(s3_uri(server, "bucket")), "value");
  expect_value(*open_store(s3_uri(server, "bucket/some/prefix/")), "value", make_value(10, 1));
}

TEST_CASE("a bucket that is not there is an error that names it, and no absent value", "[remote][s3]") {
  const Keys keys;
  const S3Server server;
  const auto store = open_store(s3_uri(server, "nobucket"));
  const Error read = expect_failure(ErrorCode::kInternal, 5s, [&] { return store->read("value"); });
  CHECK(read.message.find("NoSuchBucket") != std::string::npos);
  const Error written =
      expect_failure(ErrorCode::kInternal, 5s, [&] { return store->write("value", make_value(10, 1)); });
  CHECK(written.message.find("s3cret") == std::string::npos);
}

TEST_CASE("an S3 server that went away is an error at once, and is used again when it is back", "[remote][s3]") {
  const Keys keys;
  S3Server server;
  const auto store = open_store(s3_uri(server));
  survive_a_restart(*store, server.process(), [&] { server.make_bucket(); });
}

TEST_CASE("an S3 server that answers nothing is given up after the timeout", "[remote][s3]") {
  const Keys keys;
  S3Server server;
  const auto store = open_store(s3_uri(server), 3s);
  give_up_on_silence(*store, server.process(), 3s);
}

TEST_CASE("an object that stops coming is given up", "[remote][s3]") {
  const Keys keys;
  const S3Server server;
  expect_success(open_store(s3_uri(server))->write("value", make_value(4 * kMiB, 1)));
  const SlowLine stalling(server.port(), {.stall_after = kMiB});
  const auto store = open_store(
      "s3://bucket/some/prefix?region=us-east-1&endpoint=http://127.0.0.1:" + std::to_string(stalling.port()), 3s);
  expect_failure(ErrorCode::kTimeout, 3s, [&] { return store->read("value"); });
}

#endif

}  // namespace
}  // namespace promptcached::kv
