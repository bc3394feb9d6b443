#include "api/media_type.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace promptcached::api {
namespace {

std::string trimmed_lower(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\"");
  if (first == std::string_view::npos) {
    return {};
  }
  text = text.substr(first, text.find_last_not_of(" \t\"") - first + 1);
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

struct MediaType {
  std::string name;     // "application/json"
  std::string charset;  // empty: not given
};

MediaType parse_media_type(std::string_view text) {
  MediaType type;
  std::size_t end = text.find(';');
  type.name = trimmed_lower(text.substr(0, end));
  while (end != std::string_view::npos) {
    text.remove_prefix(end + 1);
    end = text.find(';');
    const std::string_view parameter = text.substr(0, end);
    const auto equals = parameter.find('=');
    if (equals != std::string_view::npos && trimmed_lower(parameter.substr(0, equals)) == "charset") {
      type.charset = trimmed_lower(parameter.substr(equals + 1));
    }
  }
  return type;
}

Error unsupported(std::string message) { return make_error(ErrorCode::kUnsupportedMediaType, std::move(message)); }

Error unsupported_type(const MediaType& type, std::string_view wanted) {
  std::string message = "Content-Type '" + type.name.substr(0, 100) + "' is not supported; send " + std::string(wanted);
  if (type.name == "application/x-www-form-urlencoded") {
    message += " (with curl: -H 'Content-Type: application/json' --data-binary)";
  }
  return unsupported(std::move(message));
}

constexpr std::string_view kBoth = "application/json, or PML as application/xml, text/xml or text/plain";

// The declared type; an empty name when there is none.
Result<MediaType> declared_type(const HttpRequest& request) {
  if (const auto encoding = request.header("Content-Encoding"); encoding && trimmed_lower(*encoding) != "identity") {
    return unsupported("Content-Encoding is not supported; send the body as it is");
  }
  const MediaType type = parse_media_type(request.header("Content-Type").value_or(""));
  if (!type.charset.empty() && type.charset != "utf-8" && type.charset != "utf8" && type.charset != "us-ascii") {
    return unsupported("charset '" + type.charset.substr(0, 100) + "' is not supported; send UTF-8");
  }
  return type;
}

}  // namespace

Result<BodyKind> body_kind(const HttpRequest& request) {
  const Result<MediaType> type = declared_type(request);
  if (!type) {
    return type.error();
  }
  if (type->name == "application/json") {
    return BodyKind::kJson;
  }
  if (type->name == "application/xml" || type->name == "text/xml" || type->name == "text/plain") {
    return BodyKind::kPml;
  }
  if (!type->name.empty()) {
    return unsupported_type(*type, kBoth);
  }
  const auto first = request.body.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || request.body[first] == '{') {
    return BodyKind::kJson;  // an empty body is then refused as JSON, in words that fit
  }
  if (request.body[first] == '<') {
    return BodyKind::kPml;
  }
  return unsupported("the body has no Content-Type and is neither a JSON object nor PML; send " + std::string(kBoth));
}

Status require_json(const HttpRequest& request) {
  const Result<MediaType> type = declared_type(request);
  if (!type) {
    return type.error();
  }
  if (!type->name.empty() && type->name != "application/json") {
    return unsupported_type(*type, "application/json");
  }
  return {};
}

}  // namespace promptcached::api
