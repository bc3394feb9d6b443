#include "api/openai/chat_wire.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "api/openai/pml_conversation.h"
#include "api/wire/ordered.h"
#include "api/wire/sampling.h"

namespace promptcached::api {
namespace {

using Ordered = OrderedJson;

bool mentions(const ChatTemplate& chat_template, std::string_view word) {
  return chat_template.source().find(word) != std::string::npos;
}

// Reads `messages`, into the template's context and as PML beside it.
class MessageReader final {
 public:
  MessageReader(ObjectReader& in, const ChatTemplate* chat_template)
      : in_(in), knows_developer_(chat_template != nullptr && mentions(*chat_template, "developer")) {}

  void read() {
    if (InputJson* const prompt_cache = in_.object("prompt_cache")) {
      note(pml_.add_prompt_cache(*prompt_cache, fidelity_));
    }
    InputJson* const messages = in_.list("messages");
    if (messages == nullptr || messages->empty()) {
      in_.refuse("messages", "is required: a list of at least one message");
      return;
    }
    for (std::size_t i = 0; i < messages->size() && ok_; ++i) {
      read_message((*messages)[i], "messages[" + std::to_string(i) + "]");
    }
  }

  Ordered take_messages() { return std::move(messages_); }
  Fidelity fidelity() const { return fidelity_; }
  std::optional<std::string> pml() const { return pml_.names_modules() ? std::optional(pml_.prompt()) : std::nullopt; }

 private:
  void refuse(const std::string& where, const std::string& message) {
    note(make_error(ErrorCode::kInvalidField, where + " " + message, where));
  }
  void note(const Status& status) {
    if (!status) {
      in_.refuse(status.error());
      ok_ = false;
    }
  }

  void read_message(InputJson& message, const std::string& where) {
    if (!message.is_object()) {
      return refuse(where, "must be an object");
    }
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) {
      return refuse(where + ".role", "is required: system, developer, user, assistant or tool");
    }
    std::string name = role->get<std::string>();
    constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
    if (std::find(kRoles.begin(), kRoles.end(), name) == kRoles.end()) {
      return refuse(where + ".role", "must be system, developer, user, assistant or tool");
    }
    if (name == "developer" && !knows_developer_) {
      name = "system";  // what OpenAI called it before
    }
    Ordered read = Ordered::object();
    read["role"] = name;
    // Without modules in it the PML is not used, so that its refusals count only with them.
    role_fault_ = role_fault_ ? role_fault_ : fault_of(pml_.open_message(name, where + ".role"));
    read["content"] = read_content(message, where);
    pml_.close_message();
    for (const char* key : {"name", "tool_call_id", "reasoning_content"}) {
      if (const auto value = message.find(key); value != message.end() && !value->is_null()) {
        read[key] = *value;
      }
    }
    read_tool_calls(message, where, read);
    if (pml_.names_modules() && role_fault_) {
      note(*role_fault_);
    }
    messages_.push_back(std::move(read));
  }

  static std::optional<Error> fault_of(const Status& status) {
    return status ? std::nullopt : std::optional(status.error());
  }

  // Text, or parts of which texts are lines.
  std::string read_content(InputJson& message, const std::string& where) {
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) {
      const bool may_lack = message.contains("tool_calls") && !message["tool_calls"].is_null();
      if (!may_lack) {
        refuse(where + ".content", "is required: a text, or a list of parts");
      }
      return {};
    }
    if (content->is_string()) {
      pml_.add_text(content->get_ref<const std::string&>());
      return content->get<std::string>();
    }
    if (!content->is_array()) {
      refuse(where + ".content", "must be a text or a list of parts");
      return {};
    }
    std::string text;
    for (std::size_t i = 0; i < content->size() && ok_; ++i) {
      read_part((*content)[i], where + ".content[" + std::to_string(i) + "]", i == 0, text);
    }
    return text;
  }

  void read_part(InputJson& part, const std::string& where, bool is_first, std::string& text) {
    const auto kind = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || kind == part.end() || !kind->is_string()) {
      return refuse(where, "must be an object with a type");
    }
    if (*kind == "module") {
      return note(pml_.add_module(part, where));
    }
    if (*kind != "text") {
      return refuse(where + ".type", "must be 'text' or 'module'; this model reads nothing else");
    }
    const auto value = part.find("text");
    if (value == part.end() || !value->is_string()) {
      return refuse(where + ".text", "is required: a text");
    }
    const std::string line = (is_first || text.empty() ? "" : "\n") + value->get_ref<const std::string&>();
    pml_.add_text(line);
    text += line;
  }

  // OpenAI's arguments are JSON in a text; templates want what it stands for.
  void read_tool_calls(InputJson& message, const std::string& where, Ordered& read) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || calls->is_null()) {
      return;
    }
    if (!calls->is_array()) {
      return refuse(where + ".tool_calls", "must be a list");
    }
    Ordered list = Ordered::array();
    for (const InputJson& call : *calls) {
      const bool named = call.is_object() && call.contains("function") && call["function"].is_object() &&
                         call["function"].contains("name") && call["function"]["name"].is_string();
      if (!named) {
        return refuse(where + ".tool_calls", "must hold calls of functions, each with a name");
      }
      Ordered copy(call);
      Ordered& arguments = copy["function"]["arguments"];
      if (arguments.is_string()) {
        const Ordered parsed = Ordered::parse(arguments.get_ref<const std::string&>(), nullptr, false);
        if (parsed.is_object()) {
          arguments = parsed;
        }
      } else if (arguments.is_null()) {
        arguments = Ordered::object();
      }
      list.push_back(std::move(copy));
    }
    if (!list.empty()) {
      read["tool_calls"] = std::move(list);
    }
  }

  ObjectReader& in_;
  const bool knows_developer_;
  bool ok_ = true;
  Ordered messages_ = Ordered::array();
  PmlConversation pml_;
  Fidelity fidelity_ = Fidelity::kModular;
  std::optional<Error> role_fault_;
};

// The function that {"type": "function", "function": {"name": "find"}} names, as a tool or a choice of one.
std::optional<std::string> function_name(const InputJson& value) {
  const auto function = value.is_object() ? value.find("function") : value.end();
  if (!value.is_object() || function == value.end() || !function->is_object()) {
    return std::nullopt;
  }
  const auto name = function->find("name");
  return name != function->end() && name->is_string() ? std::optional(name->get<std::string>()) : std::nullopt;
}

// auto, none, required, or a function: which tools the answer may call, or must call one of.
void read_tool_choice(ObjectReader& in, WireChat& wire) {
  Ordered& tools = wire.context["tools"];
  wire.has_tools = tools.is_array();
  const InputJson* const value = in.value("tool_choice");
  const std::string choice = value != nullptr && value->is_string() ? value->get<std::string>() : "";
  if (value == nullptr || choice == "auto") {
    return;
  }
  if (choice == "none") {
    wire.has_tools = false;
    tools = nullptr;
    return;
  }
  const std::optional<std::string> name = function_name(*value);
  if (choice != "required" && !name) {
    return in.refuse("tool_choice", "must be 'auto', 'none', 'required', or a function by its name");
  }
  for (std::size_t i = 0; wire.has_tools && i < tools.size(); ++i) {
    if (!name || tools[i]["function"]["name"] == *name) {
      wire.forced_tools.push_back(tools[i]);
    }
  }
  if (wire.forced_tools.empty()) {
    return in.refuse("tool_choice",
                     "asks for a call, but tools has none to call" + (name ? " of that name" : std::string()));
  }
  if (wire.constraint) {
    in.refuse("tool_choice", "cannot force a call beside " + wire.constraint->param + ": an answer has one format");
  }
}

void read_tools(ObjectReader& in, const std::string& body, const ChatTemplate* chat_template, WireChat& wire) {
  wire.context["tools"] = nullptr;
  const InputJson* const tools = in.list("tools");
  if (tools == nullptr || tools->empty()) {
    return;
  }
  const bool functions = std::all_of(tools->begin(), tools->end(), [](const InputJson& tool) {
    return function_name(tool).has_value() && tool.value("type", InputJson("")) == "function";
  });
  if (!functions) {
    return in.refuse("tools", "must hold functions: {\"type\": \"function\", \"function\": {\"name\": …}}");
  }
  if (has_large_object(*tools)) {
    return in.refuse("tools",
                     "must not have an object of more than " + std::to_string(kMaxOrderedMembers) + " members");
  }
  if (chat_template == nullptr || !mentions(*chat_template, "tools")) {
    return in.refuse("tools", "are not known to this model's chat template");
  }
  wire.context["tools"] = ordered_member(body, "tools");
}

// More that a template may ask for: {"enable_thinking": false}.
void read_template_arguments(ObjectReader& in, WireChat& wire) {
  InputJson* const arguments = in.object("chat_template_kwargs");
  if (arguments == nullptr) {
    return;
  }
  if (has_large_object(*arguments)) {
    return in.refuse("chat_template_kwargs", "has too many members");
  }
  for (const auto& [name, value] : arguments->items()) {
    if (wire.context.contains(name)) {
      return in.refuse("chat_template_kwargs", "must not hold '" + name + "', which is a field of its own");
    }
    wire.context[name] = value;
  }
}

void refuse_what_is_not_supported(ObjectReader& in) {
  for (const char* name : {"functions", "function_call"}) {
    if (in.value(name) != nullptr) {
      in.refuse(name, "is OpenAI's former way; use tools");
    }
  }
  for (const char* name : {"audio", "web_search_options"}) {
    if (in.value(name) != nullptr) {
      in.refuse(name, "is not supported");
    }
  }
  if (const auto modalities = in.texts("modalities", 8)) {
    if (*modalities != std::vector<std::string>{"text"}) {
      in.refuse("modalities", "must be [\"text\"]");
    }
  }
}

Status read_fields(ObjectReader& in, const std::string& body, const ChatTemplate* chat_template, WireChat& wire) {
  read_common_fields(in, body, wire);
  wire.max_tokens = read_token_count(in, "max_tokens");
  if (const auto count = read_token_count(in, "max_completion_tokens")) {
    wire.max_tokens = count;
  }
  set_if_given(wire.logprobs, in.boolean("logprobs"));
  set_if_given(wire.top_logprobs, in.integer("top_logprobs", 0, kMaxTopLogprobs));
  if (wire.top_logprobs > 0 && !wire.logprobs) {
    in.refuse("top_logprobs", "goes with logprobs: true alone");
  }
  refuse_what_is_not_supported(in);

  MessageReader messages(in, chat_template);
  messages.read();
  wire.context = {{"messages", messages.take_messages()}, {"documents", nullptr}, {"add_generation_prompt", true}};
  set_if_given(wire.context["add_generation_prompt"], in.boolean("add_generation_prompt"));
  read_tools(in, body, chat_template, wire);
  read_tool_choice(in, wire);
  read_template_arguments(in, wire);
  wire.pml = messages.pml();
  wire.fidelity = messages.fidelity();
  return in.finish_leniently();
}

}  // namespace

Result<WireChat> read_chat(const HttpRequest& request, const ChatTemplate* chat_template) {
  Result<InputJson> object = read_json_body(request);
  if (!object) {
    return object.error();
  }
  ObjectReader in(*object);
  WireChat wire;
  if (Status status = read_fields(in, request.body, chat_template, wire); !status) {
    return status.error();
  }
  return wire;
}

JsonFields chat_fields() {
  WireChat wire;
  return fields_asked_for([&](ObjectReader& in) { (void)read_fields(in, {}, nullptr, wire); });
}

}  // namespace promptcached::api
