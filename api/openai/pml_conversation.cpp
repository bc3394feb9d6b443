#include "api/openai/pml_conversation.h"

#include <vector>

namespace promptcached::api {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

Status wrong(const std::string& where, const std::string& message) {
  return make_error(ErrorCode::kInvalidField, where + " " + message, where);
}

// What a name may consist of is for PML to say; here it must only not break out of its element.
bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of("<>&\"'= \t\r\n/") == std::string_view::npos;
}

}  // namespace

Status PmlConversation::add_prompt_cache(InputJson& prompt_cache, Fidelity& fidelity) {
  const std::string where = "prompt_cache";
  ObjectReader in(prompt_cache, where + ".");
  const std::string schema = in.text("schema").value_or("");
  InputJson* const modules = in.object("modules");
  fidelity = read_fidelity(in);
  if (Status status = in.finish(); !status) {
    return status;
  }
  if (Status status = use_schema(schema, where + ".schema"); !status) {
    return status;
  }
  if (modules != nullptr) {
    for (const auto& [path, arguments] : modules->items()) {
      if (Status status = add_import(path, &arguments, where + ".modules"); !status) {
        return status;
      }
    }
  }
  return {};
}

Status PmlConversation::open_message(const std::string& role, const std::string& where) {
  if (role != "system" && role != "user" && role != "assistant") {
    return wrong(where, "must be system, user or assistant where modules are named");
  }
  role_ = role;
  text_.clear();
  only_modules_ = false;
  return {};
}

void PmlConversation::add_text(std::string_view text) { text_ += escaped(text); }

void PmlConversation::close_message() {
  if (!only_modules_ || !text_.empty()) {
    messages_ += '<' + role_ + '>' + text_ + "</" + role_ + '>';
  }
}

Status PmlConversation::add_module(InputJson& part, const std::string& where) {
  ObjectReader in(part, where + ".");
  in.text("type");
  const std::string schema = in.text("schema").value_or("");
  const std::string name = in.text("name").value_or("");
  InputJson* const arguments = in.object("args");
  if (Status status = in.finish(); !status) {
    return status;
  }
  if (Status status = use_schema(schema, where + ".schema"); !status) {
    return status;
  }
  only_modules_ = true;
  return add_import(name, arguments, where + ".name");
}

Status PmlConversation::use_schema(const std::string& schema, const std::string& where) {
  if (!is_name(schema)) {
    return wrong(where, "must name a registered schema");
  }
  if (!schema_.empty() && schema_ != schema) {
    return wrong(where, "is another schema than the conversation's '" + schema_ + "'; a prompt has one");
  }
  schema_ = schema;
  return {};
}

// A path "outer/inner" imports the inner module within its parent.
Status PmlConversation::add_import(std::string_view path, const InputJson* arguments, const std::string& where) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    names.emplace_back(path.substr(begin, end - begin));
    if (!is_name(names.back())) {
      return wrong(where, "must name a module of the schema");
    }
    begin = end + 1;
  }
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    imports_ += '<' + names[i] + '>';
  }
  imports_ += '<' + names.back();
  if (arguments != nullptr) {
    if (!arguments->is_object()) {
      return wrong(where, "must have an object of arguments for each module");
    }
    for (const auto& [name, value] : arguments->items()) {
      if (!is_name(name) || !value.is_string()) {
        return wrong(where, "must have texts as a module's arguments");
      }
      imports_ += ' ' + name + "=\"" + escaped(value.get_ref<const std::string&>()) + '"';
    }
  }
  imports_ += "/>";
  for (std::size_t i = names.size() - 1; i > 0; --i) {
    imports_ += "</" + names[i - 1] + '>';
  }
  return {};
}

std::string PmlConversation::prompt() const {
  return "<prompt schema=\"" + schema_ + "\" xml:space=\"preserve\">" + imports_ + messages_ + "</prompt>";
}

}  // namespace promptcached::api
