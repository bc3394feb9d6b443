#include "api/error.h"

#include <map>
#include <set>

#include "core/base/utf8.h"
#include "tests/catch.h"

namespace promptcached::api {

// docs/api.md, line by line: whoever adds an ErrorCode decides here what a client sees.
TEST_CASE("every error code has its HTTP status", "[api]") {
  const std::map<ErrorCode, int> expected = {
      {ErrorCode::kInvalidJson, 400},
      {ErrorCode::kInvalidField, 400},
      {ErrorCode::kUnknownField, 400},
      {ErrorCode::kInvalidPml, 400},
      {ErrorCode::kDuplicateName, 400},
      {ErrorCode::kDuplicateImport, 400},
      {ErrorCode::kUnionConflict, 400},
      {ErrorCode::kUnknownSchema, 404},
      {ErrorCode::kUnknownModule, 400},
      {ErrorCode::kUnknownParameter, 400},
      {ErrorCode::kArgumentTooLong, 400},
      {ErrorCode::kTextDoesNotFit, 400},
      {ErrorCode::kContextLengthExceeded, 400},
      {ErrorCode::kEmptyPrompt, 400},
      {ErrorCode::kNotFound, 404},
      {ErrorCode::kMethodNotAllowed, 405},
      {ErrorCode::kConflict, 409},
      {ErrorCode::kPreconditionFailed, 412},
      {ErrorCode::kBodyTooLarge, 413},
      {ErrorCode::kUnsupportedMediaType, 415},
      {ErrorCode::kUnauthorized, 401},
      {ErrorCode::kForbidden, 403},
      {ErrorCode::kQueueFull, 429},
      {ErrorCode::kNotReady, 503},
      {ErrorCode::kDraining, 503},
      {ErrorCode::kTooLargeForCache, 507},
      {ErrorCode::kStorageFailed, 507},
      {ErrorCode::kTimeout, 503},
      {ErrorCode::kCancelled, 499},
      {ErrorCode::kInternal, 500},
  };
  // kInternal is the enum's last: all are there.
  REQUIRE(expected.size() == static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  std::set<std::string_view> names;
  for (const auto& [code, status] : expected) {
    CAPTURE(to_string(code));
    CHECK(http_status(code) == status);
    CHECK(http_status(code) != 422);
    CHECK(names.insert(to_string(code)).second);
    // What time may cure says when to come back.
    CHECK(retry_after_seconds(code).has_value() == (status == 429 || status == 503));
  }
}

TEST_CASE("the error document has one form", "[api]") {
  Error error = make_error_at(ErrorCode::kUnknownModule, {3, 7}, "no module 'mauii'");
  error.param = "prompt";
  CHECK(to_text(error_document(error, "req-1")) ==
        R"({"error":{"code":"unknown_module","message":"no module 'mauii'","type":"invalid_request_error",)"
        R"("param":"prompt","line":3,"column":7,"request_id":"req-1"}})");
  CHECK(to_text(error_document(make_error(ErrorCode::kInternal, "x"), "r")) ==
        R"({"error":{"code":"internal","message":"x","type":"server_error","request_id":"r"}})");
}

TEST_CASE("an error is valid UTF-8 whatever its message holds", "[api]") {
  const HttpResponse response = error_response(make_error(ErrorCode::kInvalidField, "bad \xFF byte\n\x01"), "r");
  CHECK(is_valid_utf8(response.body));
  CHECK(response.content_type == "application/json");
  CHECK(Json::accept(response.body));
}

TEST_CASE("errors that time may cure carry Retry-After, refused keys the scheme", "[api]") {
  CHECK(find_header(error_response(make_error(ErrorCode::kQueueFull, "x"), "r").headers, "retry-after") == "1");
  CHECK(find_header(error_response(make_error(ErrorCode::kDraining, "x"), "r").headers, "Retry-After").has_value());
  CHECK(find_header(error_response(make_error(ErrorCode::kUnauthorized, "x"), "r").headers, "WWW-Authenticate") ==
        "Bearer");
  CHECK(error_response(414, make_error(ErrorCode::kInvalidField, "x"), "r").status == 414);
}

}  // namespace promptcached::api
