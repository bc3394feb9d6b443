#include "core/tokenizer/tokenizer_config.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace promptcached {
namespace {

using Json = nlohmann::json;

// A JSON object; empty if the document is not there.
Json read_json_object(const checkpoint::ModelFiles& files, const std::string& document) {
  const std::optional<std::string> text = files.find(document);
  if (!text) {
    return Json::object();
  }
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw std::runtime_error(files.where(document) + ": not a JSON object");
  }
  return json;
}

// Special tokens are written as a string or, with their flags, as an object.
void add_special_tokens(const Json& json, std::map<std::string, std::string>& tokens) {
  for (const auto& [name, value] : json.items()) {
    if (!name.ends_with("_token")) {
      continue;
    }
    if (value.is_string()) {
      tokens.emplace(name, value.get<std::string>());
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens.emplace(name, value["content"].get<std::string>());
    }
  }
}

// A model with several templates names them; "default" is the one for plain conversations.
std::optional<std::string> default_template(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  std::optional<std::string> found;
  if (value.is_array()) {
    for (const Json& entry : value) {
      const bool usable = entry.is_object() && entry.contains("template") && entry["template"].is_string();
      if (usable && (!found || entry.value("name", "") == "default")) {
        found = entry["template"].get<std::string>();
      }
    }
  }
  return found;
}

}  // namespace

std::string TokenizerConfig::special_token(const std::string& name) const {
  const auto found = special_tokens.find(name);
  return found == special_tokens.end() ? std::string() : found->second;
}

TokenizerConfig read_tokenizer_config(const checkpoint::ModelFiles& files) {
  TokenizerConfig config;
  const Json json = read_json_object(files, "tokenizer_config.json");
  add_special_tokens(json, config.special_tokens);
  add_special_tokens(read_json_object(files, "special_tokens_map.json"), config.special_tokens);
  if (const auto found = json.find("add_bos_token"); found != json.end() && found->is_boolean()) {
    config.add_bos_token = found->get<bool>();
  }
  if (const auto found = json.find("chat_template"); found != json.end()) {
    config.chat_template = default_template(*found);
  }
  if (std::optional<std::string> chat_template = files.find("chat_template.jinja")) {
    config.chat_template = *std::move(chat_template);
  }
  return config;
}

}  // namespace promptcached
