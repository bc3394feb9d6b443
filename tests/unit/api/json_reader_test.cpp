#include "api/json_reader.h"

#include "core/base/utf8.h"
#include "tests/catch.h"

namespace promptcached::api {
namespace {

Error json_error(std::string_view text, const JsonLimits& limits = {}) {
  const Result<InputJson> document = parse_json_object(text, limits);
  REQUIRE_FALSE(document.ok());
  CHECK(document.error().code == ErrorCode::kInvalidJson);
  CHECK(is_valid_utf8(document.error().message));
  return document.error();
}

InputJson parse(std::string_view text) {
  Result<InputJson> document = parse_json_object(text);
  REQUIRE(document.ok());
  return std::move(*document);
}

// The error that reading one field gives.
template <typename Read>
Error field_error(std::string_view text, Read read) {
  InputJson document = parse(text);
  ObjectReader in(document);
  read(in);
  const Status status = in.finish();
  REQUIRE_FALSE(status.ok());
  return status.error();
}

}  // namespace

TEST_CASE("JSON that is none is refused, with its place", "[api]") {
  for (const char* text : {"", "  \n", "{:", "{", "[1,2]", "\"text\"", "7", "null", "{} x", "{\"a\":1,}", "{'a':1}",
                           "{\"a\":tru}", "// c\n{}", "{\"a\":\"line\nbreak\"}"}) {
    CAPTURE(text);
    json_error(text);
  }
  CHECK(json_error("{\n  \"a\": x}").message.find("line 2, column 8") != std::string::npos);
  CHECK(json_error("{\"é\": x}").message.find("line 1, column 7") != std::string::npos);
}

TEST_CASE("broken UTF-8 and surrogates never reach a message", "[api]") {
  for (const std::string& bad : {std::string("\xFF"), std::string("\xC0\xAF"), std::string("\xED\xA0\x80"),
                                 std::string("\xF5\x80\x80\x80"), std::string("\xE2\x82")}) {
    CHECK(json_error("{\"prompt\":\"a" + bad + "\"}").message == "the body is not valid UTF-8 at byte 12");
    json_error("{\"" + bad + "\":1}");
  }
  json_error(R"({"prompt":"\ud83d"})");
  json_error(R"({"prompt":"\udc00\ud83d"})");
  json_error(std::string("{\0\"\0a\0", 6));      // UTF-16
  json_error(std::string("\xFF\xFE{\0}\0", 6));  // with its mark
  json_error(std::string("{\"a\":\"\0\"}", 9));  // a bare NUL
  CHECK(parse(R"({"a":"😀\u0000"})")["a"].get<std::string>() == std::string("\xF0\x9F\x98\x80\0", 5));
}

TEST_CASE("numbers that JSON cannot hold are refused by field", "[api]") {
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e400", "nan", "+1", "0x10"}) {
    const Error error = json_error("{\"temperature\":" + std::string(number) + "}");
    CHECK(error.param == "temperature");
    CHECK(error.message.find("'temperature'") != std::string::npos);
  }
}

TEST_CASE("a key given twice is refused", "[api]") {
  CHECK(json_error(R"({"seed":1,"stop":[],"seed":2})").message.find("'seed' is given twice") != std::string::npos);
  json_error(R"({"logit_bias":{"1":0,"1":1}})");
  parse(R"({"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":2}]})");
}

TEST_CASE("hostile documents stop at the limits", "[api]") {
  const std::string deep(100'000, '[');
  CHECK(json_error("{\"a\":" + deep).message.find("deep") != std::string::npos);
  std::string nested = "{\"a\":1}";
  for (int i = 0; i < 63; ++i) {
    nested = "{\"a\":" + nested + "}";
  }
  parse(nested);
  json_error("{\"a\":" + nested + "}");
  json_error(R"({"a":[1,2,3,4]})", {.max_values = 5});
  CHECK(parse_json_object(R"({"a":[1,2,3]})", {.max_values = 5}).ok());
  // A name as long as the body is not repeated in the answer.
  CHECK(json_error("{\"" + std::string(100'000, 'n') + "\": x}").message.size() < 300);
}

TEST_CASE("fields have types and ranges, and null is absent", "[api]") {
  InputJson document = parse(
      R"({"t":"x","b":true,"n":0.5,"i":7,"whole":7.0,"l":["a","b"],"one":"a","o":{"k":1},"nothing":null,"seed":-1})");
  ObjectReader in(document);
  CHECK(in.text("t") == "x");
  CHECK(in.boolean("b") == true);
  CHECK(in.number("n", {.min = 0, .max = 1}) == 0.5);
  CHECK(in.integer("i", 1, 7) == 7);
  CHECK(in.integer("whole", 1, 7) == 7);
  CHECK(in.texts("l", 2) == std::vector<std::string>{"a", "b"});
  CHECK(in.texts("one", 2) == std::vector<std::string>{"a"});
  CHECK(in.object("o")->at("k") == 1);
  CHECK(in.seed("seed") == std::uint64_t(-1));
  CHECK_FALSE(in.text("nothing").has_value());
  CHECK(in.is_null("nothing"));
  CHECK_FALSE(in.is_null("absent"));
  CHECK_FALSE(in.number("absent", {.min = 0, .max = 1}).has_value());
  CHECK(in.finish().ok());
}

TEST_CASE("a bad value is refused by name", "[api]") {
  const auto temperature = [](ObjectReader& in) { in.number("temperature", {.min = 0, .max = 2}); };
  for (const char* value : {"-0.1", "2.01", "3", "1e39", "\"1\"", "true", "[]", "{}"}) {
    const Error error = field_error("{\"temperature\":" + std::string(value) + "}", temperature);
    CHECK(error.code == ErrorCode::kInvalidField);
    CHECK(error.param == "temperature");
    CHECK(error.message == "temperature must be a number from 0 to 2");
  }
  const auto top_p = [](ObjectReader& in) { in.number("top_p", {.min = 0, .max = 1, .above_min = true}); };
  CHECK(field_error(R"({"top_p":0})", top_p).message == "top_p must be a number above 0 and up to 1");
  const auto max_tokens = [](ObjectReader& in) { in.integer("max_tokens", 1, 100); };
  for (const char* value : {"0", "-1", "2.5", "\"5\"", "1e10", "101", "18446744073709551615", "true"}) {
    CHECK(field_error("{\"max_tokens\":" + std::string(value) + "}", max_tokens).param == "max_tokens");
  }
  field_error(R"({"stop":["a",1]})", [](ObjectReader& in) { in.texts("stop", 16); });
  field_error(R"({"stop":["a","b","c"]})", [](ObjectReader& in) { in.texts("stop", 2); });
  field_error(R"({"seed":1.5})", [](ObjectReader& in) { in.seed("seed"); });
  field_error(R"({"x":1})", [](ObjectReader& in) { in.text("x"); });
  field_error(R"({"x":1})", [](ObjectReader& in) { in.boolean("x"); });
  field_error(R"({"x":1})", [](ObjectReader& in) { in.object("x"); });
}

TEST_CASE("unknown fields are refused with the nearest known one", "[api]") {
  const auto known = [](ObjectReader& in) {
    in.text("prompt");
    in.number("temperature", {.min = 0, .max = 2});
  };
  const Error error = field_error(R"({"temprature":1})", known);
  CHECK(error.code == ErrorCode::kUnknownField);
  CHECK(error.param == "temprature");
  CHECK(error.message == "unknown field 'temprature' (did you mean 'temperature'?)");
  CHECK(field_error("{\"" + std::string(1'000'000, 'x') + "\":1}", known).message.size() < 300);
  // Even null: a field that does not exist is a mistake whatever it holds.
  CHECK(field_error(R"({"promt":null})", known).code == ErrorCode::kUnknownField);
}

}  // namespace promptcached::api
