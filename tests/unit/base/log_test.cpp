#include "core/base/log.h"

#include <cmath>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/utf8.h"
#include "tests/catch.h"

namespace promptcached {
namespace {

// Logging into a string while it lives.
class Captured {
 public:
  explicit Captured(log::Format format, log::Level level = log::Level::kInfo) {
    log::configure({.level = level, .format = format, .output = &stream_});
  }
  ~Captured() { log::configure({}); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  // What was logged, without the time each line begins with.
  std::string take() {
    const std::string text = stream_.str();
    stream_.str("");
    CHECK(text.find('\n') == text.size() - 1);  // one line an event
    std::smatch match;
    static const std::regex kTime(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)");
    REQUIRE(std::regex_search(text, match, kTime));
    return match.prefix().str() + "T" + match.suffix().str();
  }
  bool empty() const { return stream_.str().empty(); }

 private:
  std::ostringstream stream_;
};

TEST_CASE("levels and formats are known by name", "[base]") {
  CHECK(log::parse_level("debug") == log::Level::kDebug);
  CHECK(log::parse_level("warn") == log::Level::kWarn);
  CHECK(log::parse_level("off") == log::Level::kOff);
  CHECK_FALSE(log::parse_level("INFO"));
  CHECK_FALSE(log::parse_level(""));
  CHECK(log::parse_format("json") == log::Format::kJson);
  CHECK(log::parse_format("text") == log::Format::kText);
  CHECK_FALSE(log::parse_format("xml"));
}

TEST_CASE("a text line has time, level, request and message", "[base]") {
  Captured captured(log::Format::kText);
  log::info("listening on {}:{}", "127.0.0.1", 8080);
  CHECK(captured.take() == "T info listening on 127.0.0.1:8080\n");
  log::warn(log::RequestId{"r-1"}, "took {:.1f} ms, {}", 12.345, std::string("late"));
  CHECK(captured.take() == "T warn [r-1] took 12.3 ms, late\n");
  log::error("{{{}}} {} {} {}", true, -1, std::size_t{18446744073709551615U}, std::string_view("x"));
  CHECK(captured.take() == "T error {true} -1 18446744073709551615 x\n");
  log::info("no arguments, {{}}");
  CHECK(captured.take() == "T info no arguments, {}\n");
}

TEST_CASE("fields follow the message", "[base]") {
  Captured captured(log::Format::kText);
  log::write(log::Level::kInfo, log::RequestId{"r"}, "done {}",
             {{"status", 200}, {"ms", 1.5}, {"ok", true}, {"path", "/a b"}, {"empty", ""}, {"route", "generate"}});
  CHECK(captured.take() == "T info [r] done {} status=200 ms=1.5 ok=true path=\"/a b\" empty=\"\" route=generate\n");
}

TEST_CASE("the level decides what is written", "[base]") {
  Captured captured(log::Format::kText, log::Level::kWarn);
  CHECK_FALSE(log::enabled(log::Level::kInfo));
  CHECK(log::enabled(log::Level::kError));
  CHECK_FALSE(log::enabled(log::Level::kOff));
  log::debug("a");
  log::info("b {}", 1);
  log::write(log::Level::kInfo, {}, "c");
  CHECK(captured.empty());
  log::error("d");
  CHECK(captured.take() == "T error d\n");
}

TEST_CASE("off writes nothing", "[base]") {
  Captured captured(log::Format::kText, log::Level::kOff);
  log::error("a");
  CHECK(captured.empty());
}

TEST_CASE("a JSON line is one object", "[base]") {
  Captured captured(log::Format::kJson);
  log::info(log::RequestId{"r-1"}, "module {} evicted", "a/b");
  CHECK(captured.take() == R"({"time":"T","level":"info","request_id":"r-1","message":"module a/b evicted"})"
                           "\n");
  log::write(log::Level::kError, {}, "done",
             {{"status", 500},
              {"big", 1e300},
              {"nan", std::nan("")},
              {"inf", std::numeric_limits<double>::infinity()},
              {"ok", false},
              {"text", "a \"b\" \\ c"}});
  CHECK(captured.take() == R"({"time":"T","level":"error","message":"done","status":500,"big":1e+300,"nan":null,)"
                           R"("inf":null,"ok":false,"text":"a \"b\" \\ c"})"
                           "\n");
}

TEST_CASE("what a client sends cannot end a line or break the JSON", "[base]") {
  const std::string hostile("a\nb\r\t\x01\x7F\"\\\xFF\xED\xA0\x80\0z", 15);
  SECTION("JSON") {
    Captured captured(log::Format::kJson);
    log::info(log::RequestId{hostile}, "{}", hostile);
    const std::string line = captured.take();
    CHECK(is_valid_utf8(line));
    const std::string escaped = R"(a\nb\r\t\u0001\u007f\"\\)"
                                "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                                R"(\u0000z)";
    CHECK(line == R"({"time":"T","level":"info","request_id":")" + escaped + R"(","message":")" + escaped + "\"}\n");
  }
  SECTION("text") {
    Captured captured(log::Format::kText);
    log::write(log::Level::kInfo, log::RequestId{hostile}, hostile, {{"field", hostile}});
    const std::string line = captured.take();
    CHECK(is_valid_utf8(line));
    CHECK(line.find('\n') == line.size() - 1);
    CHECK(line.find('\r') == std::string::npos);
    CHECK(line.find('\0') == std::string::npos);
  }
}

TEST_CASE("a wrong format specifier loses no event", "[base]") {
  Captured captured(log::Format::kText);
  log::info("number {:d}", "text");
  CHECK(captured.take().find("number {:d} (log format error") != std::string::npos);
}

TEST_CASE("a percent sign is no pattern", "[base]") {
  Captured captured(log::Format::kJson);
  log::info("100%v %l {}", "%n");
  CHECK(captured.take() == R"({"time":"T","level":"info","message":"100%v %l %n"})"
                           "\n");
}

TEST_CASE("threads may log at the same time", "[base][threads]") {
  std::ostringstream stream;
  log::configure({.output = &stream});
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        log::info("thread {} line {}", t, i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  log::configure({});
  std::istringstream lines(stream.str());
  int count = 0;
  int wrong = 0;
  const std::regex whole(R"(\S+Z info thread \d line \d+)");
  for (std::string line; std::getline(lines, line); ++count) {
    wrong += std::regex_match(line, whole) ? 0 : 1;
  }
  CHECK(count == 600);
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace promptcached
