#include "api/wire/constraint.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/wire/ordered.h"

namespace promptcached::api {
namespace {

constexpr std::size_t kMaxChoices = 1000;
// Of a regex or a grammar: what compiling one takes can grow with the square of it.
constexpr std::size_t kMaxTextBytes = std::size_t{16} << 10;

class ConstraintReader final {
 public:
  ConstraintReader(ObjectReader& in, std::string_view body, ConstraintFields fields)
      : in_(in), body_(body), strict_(fields == ConstraintFields::kOwn) {}

  // {"type": "json_schema", "json_schema": {"name": …, "schema": {…}}} and its like.
  void read_response_format() {
    InputJson* const object = in_.object("response_format");
    if (object == nullptr) {
      return;
    }
    ObjectReader format(*object, "response_format.");
    const std::string type = format.text("type").value_or("text");
    if (type == "json_object") {
      set("response_format", guide::Syntax::kJsonSchema, R"({"type":"object"})");
    } else if (type == "json_schema") {
      read_named_schema(format);
    } else if (type == "regex") {
      set_text("response_format", guide::Syntax::kRegex, required(format, "regex"));
    } else if (type == "grammar") {
      set_text("response_format", guide::Syntax::kLark, required(format, "grammar"));
    } else if (type != "text") {
      format.refuse("type", "must be 'text', 'json_object', 'json_schema', 'regex' or 'grammar'");
    }
    finish(format);
  }

  // vLLM's former names: guided_json, guided_regex, guided_choice, guided_grammar.
  void read_guided() { read_members(in_, "guided_", "guided_", {}); }

  // vLLM's: {"json": …, "regex": …, "choice": […], "grammar": …}.
  void read_structured_outputs() {
    InputJson* const object = in_.object("structured_outputs");
    if (object == nullptr) {
      return;
    }
    ObjectReader members(*object, "structured_outputs.");
    read_members(members, "", "structured_outputs.", "structured_outputs");
    if (members.boolean("json_object").value_or(false)) {
      set("structured_outputs.json_object", guide::Syntax::kJsonSchema, R"({"type":"object"})");
    }
    finish(members);
  }

  std::optional<guide::Constraint> take() { return std::move(constraint_); }

 private:
  void finish(ObjectReader& part) {
    if (Status status = strict_ ? part.finish() : part.finish_leniently(); !status) {
      in_.refuse(status.error());
    }
  }

  static std::optional<std::string> required(ObjectReader& format, std::string_view name) {
    std::optional<std::string> text = format.text(name);
    if (!text) {
      format.refuse(name, "is required: a text");
    }
    return text;
  }

  void read_named_schema(ObjectReader& format) {
    InputJson* const object = format.object("json_schema");
    if (object == nullptr) {
      return format.refuse("json_schema", "is required: {\"name\": …, \"schema\": {…}}");
    }
    ObjectReader named(*object, "response_format.json_schema.");
    for (const char* name : {"name", "description"}) {
      named.text(name);  // of no consequence: the model is not shown the schema
    }
    named.boolean("strict");  // it is kept to in any case
    const InputJson* const schema = named.object("schema");
    if (schema == nullptr) {
      named.refuse("schema", "is required: a JSON schema");
    } else if (check_size(*schema, "response_format")) {
      set("response_format", guide::Syntax::kJsonSchema, ordered({"response_format", "json_schema", "schema"}).dump());
    }
    finish(named);
  }

  // json, regex, choice and grammar, their names behind `prefix`. `param` stands before them in messages; `parent`: the
  // field of the body that holds them, if one does.
  void read_members(ObjectReader& in, const std::string& prefix, const std::string& param, const std::string& parent) {
    if (const InputJson* const schema = in.value(prefix + "json")) {
      std::vector<std::string> path = {prefix + "json"};
      if (!parent.empty()) {
        path.insert(path.begin(), parent);
      }
      read_schema(*schema, param + "json", path);
    }
    set_text(param + "regex", guide::Syntax::kRegex, in.text(prefix + "regex"));
    set_text(param + "grammar", guide::Syntax::kLark, in.text(prefix + "grammar"));
    if (const auto choices = in.texts(prefix + "choice", kMaxChoices)) {
      set_choice(param + "choice", *choices);
    }
  }

  // A schema, or its text.
  void read_schema(const InputJson& schema, const std::string& param, const std::vector<std::string>& path) {
    if (schema.is_string()) {
      set(param, guide::Syntax::kJsonSchema, schema.get<std::string>());
    } else if (!schema.is_object()) {
      in_.refuse(param, "must be a JSON schema");
    } else if (check_size(schema, param)) {
      set(param, guide::Syntax::kJsonSchema, ordered(path).dump());
    }
  }

  bool check_size(const InputJson& schema, const std::string& param) {
    const bool large = has_large_object(schema);
    if (large) {
      in_.refuse(param, "must not have an object of more than " + std::to_string(kMaxOrderedMembers) + " members");
    }
    return !large;
  }

  OrderedJson ordered(const std::vector<std::string>& path) const {
    OrderedJson value = ordered_member(body_, path.front());
    for (std::size_t i = 1; i < path.size(); ++i) {
      OrderedJson member = std::move(value[path[i]]);
      value = std::move(member);
    }
    return value;
  }

  void set_choice(const std::string& param, const std::vector<std::string>& choices) {
    if (choices.empty() || std::find(choices.begin(), choices.end(), "") != choices.end()) {
      return in_.refuse(param, "must be a list of texts, none of them empty");
    }
    std::string grammar = "start: ";
    for (const std::string& choice : choices) {
      grammar += (&choice == choices.data() ? "" : " | ") + OrderedJson(choice).dump();
    }
    set(param, guide::Syntax::kLark, std::move(grammar));
  }

  void set_text(const std::string& param, guide::Syntax syntax, std::optional<std::string> text) {
    if (!text) {
      return;
    }
    if (text->size() > kMaxTextBytes) {
      return in_.refuse(param, "must not have more than " + std::to_string(kMaxTextBytes) + " bytes");
    }
    set(param, syntax, std::move(*text));
  }

  void set(const std::string& param, guide::Syntax syntax, std::string text) {
    if (constraint_) {
      return in_.refuse(param, "cannot stand beside " + constraint_->param + ": an answer has one format");
    }
    constraint_ = guide::Constraint{syntax, std::move(text), param};
  }

  ObjectReader& in_;
  const std::string_view body_;
  const bool strict_;
  std::optional<guide::Constraint> constraint_;
};

}  // namespace

std::optional<guide::Constraint> read_constraint(ObjectReader& in, std::string_view body, ConstraintFields fields) {
  ConstraintReader reader(in, body, fields);
  reader.read_response_format();
  if (fields == ConstraintFields::kOpenAi) {
    reader.read_guided();
    reader.read_structured_outputs();
  }
  return reader.take();
}

}  // namespace promptcached::api
