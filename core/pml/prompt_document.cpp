#include "core/pml/prompt_document.h"

#include <array>
#include <utility>

#include "core/pml/attributes.h"
#include "core/pml/parser.h"

namespace promptcached::pml {
namespace {

Error fault(SourceLocation location, std::string message) {
  return make_error_at(ErrorCode::kInvalidPml, location, std::move(message));
}

// An import holds imports of nested modules, and nothing else.
Status check_import(const Element& import) {
  for (const Node& child : import.children) {
    Status status;
    if (const auto* text = std::get_if<Text>(&child.content)) {
      if (!is_blank(text->value)) {
        status = fault(text->location, "text inside the import <" + shown(import.name) +
                                           ">: close the import first, or pass the text as an argument (" +
                                           shown(import.name) + " parameter=\"...\")");
      }
    } else if (const auto* tag = std::get_if<RoleTag>(&child.content)) {
      status = fault(tag->location, "the role tag " + spelling(*tag) + " inside the import <" + shown(import.name) +
                                        ">: close the import first");
    } else {
      status = check_import(std::get<Element>(child.content));
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Result<PromptDocument> read_prompt(Element root) {
  constexpr std::array<std::string_view, 2> kAllowed = {"schema", "xml:space"};
  if (root.name != "prompt") {
    return fault(root.location, "the root element of a prompt is <prompt schema=\"...\">, not <" + shown(root.name) +
                                    ">" + (root.name == "schema" ? ": this is a schema; register it first" : ""));
  }
  const Status known = check_attributes(root, kAllowed);
  if (!known.ok()) {
    return known.error();
  }
  const std::string* schema = find_attribute(root, "schema");
  if (schema == nullptr) {
    return fault(root.location, "<prompt> needs the attribute 'schema': the name of a registered schema");
  }
  const Result<bool> preserve = read_preserve_space(root, false);
  if (!preserve.ok()) {
    return preserve.error();
  }
  for (const Node& child : root.children) {
    const auto* import = std::get_if<Element>(&child.content);
    const Status status = import == nullptr ? Status() : check_import(*import);
    if (!status.ok()) {
      return status.error();
    }
  }
  PromptDocument prompt;
  prompt.schema = *schema;
  prompt.preserve_space = *preserve;
  prompt.root = std::move(root);
  return prompt;
}

Error in_prompt(Error error) {
  error.param = "prompt";
  return error;
}

}  // namespace

Result<std::shared_ptr<const PromptDocument>> parse_prompt(std::string_view source, const Limits& limits) {
  Result<Element> root = parse_document(source, limits);
  if (!root.ok()) {
    return in_prompt(root.error());
  }
  Result<PromptDocument> prompt = read_prompt(std::move(*root));
  if (!prompt.ok()) {
    return in_prompt(prompt.error());
  }
  return std::make_shared<const PromptDocument>(std::move(*prompt));
}

const std::string& schema_name(const PromptDocument& prompt) { return prompt.schema; }

SourceLocation schema_location(const PromptDocument& prompt) { return prompt.root.location; }

}  // namespace promptcached::pml
