#include "core/base/status.h"

#include <memory>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "core/base/nearest_name.h"
#include "tests/catch.h"

namespace promptcached {
namespace {

TEST_CASE("every error code has a spelling of its own", "[base]") {
  std::set<std::string> names;
  const int last = static_cast<int>(ErrorCode::kInternal);
  const std::regex snake_case("[a-z]+(_[a-z]+)*");
  for (int code = 0; code <= last; ++code) {
    const std::string name(to_string(static_cast<ErrorCode>(code)));
    INFO(code << " " << name);
    CHECK(std::regex_match(name, snake_case));
    names.insert(name);
  }
  CHECK(names.size() == static_cast<std::size_t>(last) + 1);
  CHECK(to_string(ErrorCode::kUnknownModule) == "unknown_module");
  CHECK(to_string(ErrorCode::kTooLargeForCache) == "too_large_for_cache");
}

TEST_CASE("a result holds a value or an error", "[base]") {
  Result<std::unique_ptr<int>> value = std::make_unique<int>(3);
  REQUIRE(value);
  CHECK(**value == 3);
  const std::unique_ptr<int> taken = std::move(value).value();
  CHECK(*taken == 3);

  const Result<int> error = make_error(ErrorCode::kInvalidField, "must be positive", "max_tokens");
  REQUIRE_FALSE(error);
  CHECK(error.error().code == ErrorCode::kInvalidField);
  CHECK(error.error().param == "max_tokens");
  CHECK_FALSE(error.error().location);

  CHECK(Status().ok());
  const Status status = make_error_at(ErrorCode::kInvalidPml, {3, 7}, "no such tag");
  REQUIRE_FALSE(status);
  CHECK(status.error().location == SourceLocation{3, 7});
}

TEST_CASE("a typing error finds the name that was meant", "[base]") {
  const std::vector<std::string> known = {"max_tokens", "temperature", "top_p", "stop"};
  CHECK(nearest_name("max_token", known) == "max_tokens");
  CHECK(nearest_name("temprature", known) == "temperature");
  CHECK(nearest_name("tpo_k", {"top_k", "top_p"}) == "top_k");  // neighbours swapped
  CHECK(nearest_name("stop", known) == "stop");
  CHECK(nearest_name("frequency", known).empty());
  CHECK(nearest_name("", known).empty());
  CHECK(nearest_name("x", {}).empty());
  CHECK(did_you_mean("topp", known) == " (did you mean 'top_p'?)");
  CHECK(did_you_mean("nothing like it", known).empty());
}

}  // namespace
}  // namespace promptcached
