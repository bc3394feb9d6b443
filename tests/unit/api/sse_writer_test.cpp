#include "api/sse_writer.h"

#include "core/base/utf8.h"
#include "tests/unit/api/api_fixture.h"

namespace promptcached::api {

TEST_CASE("an event is its name, one line of data and a blank line", "[api]") {
  CollectingWriter out;
  SseWriter sse(out);
  sse.event("token", {{"text",
                       "a\nb\r\n\xE2\x80\xA8"
                       "c"},
                      {"token_id", 7}});
  CHECK(sse.flush());
  CHECK(out.text ==
        "event: token\ndata: {\"text\":\"a\\nb\\r\\n\xE2\x80\xA8"
        "c\",\"token_id\":7}\n\n");
}

TEST_CASE("what is ready at one time leaves in one write", "[api]") {
  CollectingWriter out;
  SseWriter sse(out);
  sse.event("start", Json::object());
  sse.comment("waiting");
  sse.event("done", Json::object());
  CHECK(out.text.empty());
  CHECK(sse.flush());
  CHECK(out.writes == 1);
  CHECK(out.text == "event: start\ndata: {}\n\n: waiting\n\nevent: done\ndata: {}\n\n");
  CHECK(sse.flush());  // nothing left
  CHECK(out.writes == 1);
}

TEST_CASE("a client that has gone is told of", "[api]") {
  CollectingWriter out;
  out.writes_left = 0;
  SseWriter sse(out);
  sse.comment("x");
  CHECK_FALSE(sse.flush());
}

TEST_CASE("events are valid UTF-8 whatever they hold", "[api]") {
  CollectingWriter out;
  SseWriter sse(out);
  sse.event("token", {{"text", "cut \xF0\x9F"}});
  sse.flush();
  CHECK(is_valid_utf8(out.text));
}

}  // namespace promptcached::api
