#include "api/api_keys.h"

#include <set>
#include <string>

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

TEST_CASE("keys are tenants of their own unless they name a common one", "[api]") {
  const Result<ApiKeys> keys = ApiKeys::parse(
      "alice-0123456789abcdef\nbob-0123456789abcdef generate\nfirst-0123456789abcdef tenant=team read\n"
      "other-0123456789abcdef tenant=team\nnamed-0123456789abcdef tenant=alice-0123456789abcdef\n");
  REQUIRE(keys.ok());
  const auto tenant = [&](const std::string& key) {
    const Result<std::string> checked = keys->check("Bearer " + key + "-0123456789abcdef", Scope::kRead);
    REQUIRE(checked.ok());
    return *checked;
  };
  CHECK(keys->check(std::nullopt, Scope::kOpen)->empty());
  CHECK(tenant("first") == tenant("other"));
  CHECK(tenant("alice") == tenant("alice"));
  CHECK(std::set<std::string>{tenant("alice"), tenant("first"), tenant("named"), "", "team"}.size() == 5);
  CHECK(tenant("alice").find("alice") == std::string::npos);  // a key is in no other memory than its own
  CHECK(keys->check("Bearer first-0123456789abcdef", Scope::kWrite).error().code == ErrorCode::kForbidden);
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
  for (const char* tenant : {"tenant=", "tenant=a,b", "tenant=a tenant=b"}) {
    CHECK(message(("good-0123456789abcdef " + std::string(tenant)).c_str()).find("tenant=") != std::string::npos);
  }
  CHECK(message("good-0123456789abcdef\ngood-0123456789abcdef read\n").rfind("line 2:", 0) == 0);
}

}  // namespace promptcached::api
