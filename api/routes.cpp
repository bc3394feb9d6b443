#include "api/routes.h"

#include <algorithm>
#include <cassert>

#include "api/explain_route.h"
#include "api/generate_route.h"
#include "api/openai/routes.h"
#include "api/ops_routes.h"
#include "api/schemas_route.h"
#include "api/spec/document.h"
#include "api/tokenize_route.h"

namespace promptcached::api {
namespace {

// docs/api.md describes each, and api/spec/operations.cpp for programs; a test compares the two.
constexpr Route kRoutes[] = {
    // method, path, label, scope, needs, body, operations, handler
    {"POST", "/generate", "generate", Scope::kGenerate, Needs::kWork, true, false, generate},

    {"POST", "/explain", "explain", Scope::kGenerate, Needs::kWork, true, false, explain},

    {"GET", "/v1/models", "models", Scope::kGenerate, Needs::kEngine, false, false, list_models},
    {"GET", "/v1/models/{model}", "models", Scope::kGenerate, Needs::kEngine, false, false, get_model},
    {"POST", "/v1/completions", "completions", Scope::kGenerate, Needs::kWork, true, false, completions},
    {"POST", "/v1/chat/completions", "chat", Scope::kGenerate, Needs::kWork, true, false, chat_completions},
    {"POST", "/tokenize", "tokenize", Scope::kGenerate, Needs::kEngine, true, false, tokenize},
    {"POST", "/detokenize", "tokenize", Scope::kGenerate, Needs::kEngine, true, false, detokenize},

    {"GET", "/schemas", "schemas", Scope::kRead, Needs::kEngine, false, false, list_schemas},
    {"POST", "/schemas", "schemas", Scope::kWrite, Needs::kWork, true, false, post_schema},
    {"GET", "/schemas/{name}", "schemas", Scope::kRead, Needs::kEngine, false, false, get_schema},
    {"PUT", "/schemas/{name}", "schemas", Scope::kWrite, Needs::kWork, true, false, put_schema},
    {"PATCH", "/schemas/{name}", "schemas", Scope::kWrite, Needs::kWork, true, false, patch_schema},
    {"DELETE", "/schemas/{name}", "schemas", Scope::kWrite, Needs::kEngine, false, false, delete_schema},

    {"GET", "/healthz", "healthz", Scope::kOpen, Needs::kNothing, false, true, healthz},
    {"GET", "/readyz", "readyz", Scope::kOpen, Needs::kNothing, false, true, readyz},
    {"GET", "/metrics", "metrics", Scope::kRead, Needs::kEngine, false, true, metrics},
    {"GET", "/cache", "cache", Scope::kRead, Needs::kEngine, false, true, get_cache},
    {"DELETE", "/cache", "cache", Scope::kWrite, Needs::kEngine, false, true, delete_cache},

    {"GET", "/openapi.json", "openapi", Scope::kOpen, Needs::kNothing, false, false, openapi},
};

}  // namespace

const std::string& RouteCall::path_value(std::string_view name) const {
  const auto found =
      std::find_if(path_values.begin(), path_values.end(), [&](const auto& value) { return value.first == name; });
  assert(found != path_values.end());
  return found->second;
}

std::span<const Route> routes() { return kRoutes; }

std::vector<std::string> route_labels() {
  std::vector<std::string> labels;
  for (const Route& route : kRoutes) {
    if (std::find(labels.begin(), labels.end(), route.label) == labels.end()) {
      labels.emplace_back(route.label);
    }
  }
  return labels;
}

}  // namespace promptcached::api
