#include "api/media_type.h"

#include "tests/catch.h"

namespace promptcached::api {
namespace {

Result<BodyKind> kind(const char* content_type, std::string body = "{}") {
  HttpRequest request;
  request.body = std::move(body);
  if (content_type != nullptr) {
    request.headers.emplace_back("content-type", content_type);
  }
  return body_kind(request);
}

}  // namespace

TEST_CASE("JSON and PML by content type", "[api]") {
  for (const char* type : {"application/json", "application/json; charset=utf-8", "Application/JSON;charset=\"UTF-8\"",
                           " application/json ; foo=bar ; charset=utf8"}) {
    CAPTURE(type);
    CHECK(*kind(type) == BodyKind::kJson);
  }
  for (const char* type :
       {"application/xml", "text/xml; charset=utf-8", "text/plain", "text/plain; charset=us-ascii"}) {
    CAPTURE(type);
    CHECK(*kind(type) == BodyKind::kPml);
  }
}

TEST_CASE("without a type the body's first character decides", "[api]") {
  CHECK(*kind(nullptr, " \n{\"a\":1}") == BodyKind::kJson);
  CHECK(*kind(nullptr, "\n<prompt/>") == BodyKind::kPml);
  CHECK(*kind(nullptr, "") == BodyKind::kJson);
  CHECK(kind(nullptr, "prompt=x").error().code == ErrorCode::kUnsupportedMediaType);
}

TEST_CASE("anything else is refused by name, at any size", "[api]") {
  for (const std::string& body : {std::string("{}"), "{\"prompt\":\"" + std::string(100'000, 'x') + "\"}"}) {
    const Result<BodyKind> form = kind("application/x-www-form-urlencoded", body);
    REQUIRE_FALSE(form.ok());
    CHECK(form.error().code == ErrorCode::kUnsupportedMediaType);
    CHECK(form.error().message.find("'application/x-www-form-urlencoded'") != std::string::npos);
    CHECK(form.error().message.find("curl") != std::string::npos);
  }
  CHECK_FALSE(kind("multipart/form-data; boundary=x").ok());
  CHECK_FALSE(kind("text/html").ok());
  CHECK(kind("application/json; charset=utf-16").error().message.find("utf-16") != std::string::npos);
  HttpRequest compressed;
  compressed.headers = {{"Content-Type", "application/json"}, {"Content-Encoding", "gzip"}};
  CHECK(body_kind(compressed).error().code == ErrorCode::kUnsupportedMediaType);
}

}  // namespace promptcached::api
