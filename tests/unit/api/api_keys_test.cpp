#include "api/api_keys.h"

#include "tests/catch.h"

namespace promptcached::api {

TEST_CASE("a file of keys", "[api]") {
  const Result<ApiKeys> keys =
      ApiKeys::parse("# people\n\n  alice-0123456789abcdef \nbob-0123456789abcdef generate read # may not write\r\n");
  REQUIRE(keys.ok());
  CHECK(keys->size() == 2);
  CHECK(keys->check("Bearer alice-0123456789abcdef", Scope::kWrite).ok());
  CHECK(keys->check("Bearer   bob-0123456789abcdef", Scope::kGenerate).ok());
  CHECK(keys->check("Bearer bob-0123456789abcdef", Scope::kWrite).error().code == ErrorCode::kForbidden);
  CHECK(keys->check("Bearer ", Scope::kRead).error().code == ErrorCode::kUnauthorized);
  CHECK(keys->check("Bearer", Scope::kRead).error().code == ErrorCode::kUnauthorized);
  CHECK(keys->check("Bearer alice-0123456789abcde", Scope::kRead).error().code == ErrorCode::kUnauthorized);
  CHECK(keys->check(std::nullopt, Scope::kOpen).ok());
}

TEST_CASE("a bad file of keys is refused by line, without repeating keys", "[api]") {
  const auto message = [](const char* text) {
    const Result<ApiKeys> keys = ApiKeys::parse(text);
    REQUIRE_FALSE(keys.ok());
    return keys.error().message;
  };
  CHECK(message("").find("no key") != std::string::npos);
  CHECK(message("good-0123456789abcdef\nshort\n").rfind("line 2:", 0) == 0);
  CHECK(message("bad\"key-0123456789abcdef\n").find("bad") == std::string::npos);
  CHECK(message("good-0123456789abcdef wirte\n").find("unknown scope 'wirte'") != std::string::npos);
  CHECK(message("good-0123456789abcdef\ngood-0123456789abcdef read\n").rfind("line 2:", 0) == 0);
}

}  // namespace promptcached::api
