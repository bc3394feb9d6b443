// Role texts: a chat template rendered with marker contents and cut at the markers.
//
// In a rendered conversation, what stands between two contents is one turn's close and the next one's open. The ends
// of conversations tell which part is which:
//
//   [user A, assistant B, user C, assistant D]       open|A|user.close assistant.open|B|...|D|assistant.close
//   [user A, assistant B, user C]                    ...|C|user.close
//   [user A, assistant B, user C] + generation       ...|C|user.close generation_prompt
//   [system S, user A]                               system.open|S|system.close user.open|A|...
//
// The user's open is taken from a later turn: the first may have BOS and a default system message in front of it.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer_config.h"

namespace promptcached {
namespace {

// Contents that no template treats in a special way, and that occur in none.
constexpr std::array<std::string_view, 4> kMarkers = {"Zq0xMarkA", "Zq1xMarkB", "Zq2xMarkC", "Zq3xMarkD"};

Error cannot_split(const std::string& why) {
  return make_error(ErrorCode::kInternal, "the chat template cannot be split into role texts: " + why);
}

// The text before, between and after the contents of a conversation with one turn for each of `roles`.
Result<std::vector<std::string>> gaps_of(const ChatTemplate& chat_template, const std::vector<std::string>& roles,
                                         bool add_generation_prompt) {
  std::vector<ChatMessage> messages;
  messages.reserve(roles.size());
  for (std::size_t i = 0; i < roles.size(); ++i) {
    messages.push_back({roles[i], std::string(kMarkers[i])});
  }
  const auto rendered = chat_template.render(messages, add_generation_prompt);
  if (!rendered) {
    return rendered.error();
  }
  std::vector<std::string> gaps;
  std::string_view rest = *rendered;
  for (const ChatMessage& message : messages) {
    const std::size_t found = rest.find(message.content);
    if (found == std::string_view::npos || rest.find(message.content, found + 1) != std::string_view::npos) {
      return make_error(ErrorCode::kInternal, "it leaves out, moves or repeats the " + message.role + " message");
    }
    gaps.emplace_back(rest.substr(0, found));
    rest.remove_prefix(found + message.content.size());
  }
  gaps.emplace_back(rest);
  return gaps;
}

// What two texts start with in common, without half a control token: "<|end|>" of "<|end|><|user|>" and
// "<|end|><|endoftext|>" (a template may end a conversation with a token of its own, as Phi's do).
std::string common_prefix(const std::string& a, const std::string& b) {
  std::string prefix(a.begin(), std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first);
  if (prefix.size() == std::min(a.size(), b.size())) {
    return prefix;
  }
  const std::size_t bracket = prefix.find_last_of("<[");
  if (bracket != std::string::npos && prefix.find(prefix[bracket] == '<' ? '>' : ']', bracket) == std::string::npos) {
    prefix.resize(bracket);
  }
  return prefix;
}

std::string common_leading_whitespace(const std::string& a, const std::string& b) {
  const std::size_t end = std::min(a.find_first_not_of(" \n"), b.find_first_not_of(" \n"));
  return end == std::string::npos ? std::string() : common_prefix(a.substr(0, end), b.substr(0, end));
}

std::string with_system_for_user(std::string text) {
  constexpr std::string_view kUser = "user";
  if (const std::size_t at = text.find(kUser); at != std::string::npos) {
    text.replace(at, kUser.size(), "system");
  }
  return text;
}

// BOS in front of a conversation, or of a turn (Llama 2). With some models the token that opens every turn is also
// named BOS; there it belongs to the turns, but for a second one in front of the conversation.
class LeadingBos final {
 public:
  LeadingBos(const std::string& bos, const RoleTexts& texts)
      : prefix_(texts.assistant.open.starts_with(bos) || texts.generation_prompt.starts_with(bos) ? bos + bos : bos),
        size_(bos.size()) {}

  bool leads(const std::string& text) const { return size_ > 0 && text.starts_with(prefix_); }
  std::string removed_from(const std::string& text) const { return leads(text) ? text.substr(size_) : text; }

 private:
  std::string prefix_;  // what a text that has BOS in front starts with
  std::size_t size_;
};

// Renderings of plain conversations, cut at their contents.
struct Renderings {
  std::vector<std::string> answered;    // user, assistant, user, assistant
  std::vector<std::string> asked;       // user, assistant, user
  std::vector<std::string> generating;  // the same with the generation prompt
};

Result<Renderings> render_conversations(const ChatTemplate& chat_template) {
  auto answered = gaps_of(chat_template, {"user", "assistant", "user", "assistant"}, false);
  auto asked = gaps_of(chat_template, {"user", "assistant", "user"}, false);
  auto generating = gaps_of(chat_template, {"user", "assistant", "user"}, true);
  for (const auto* gaps : {&answered, &asked, &generating}) {
    if (!*gaps) {
      return cannot_split(gaps->error().message);
    }
  }
  return Renderings{*std::move(answered), *std::move(asked), *std::move(generating)};
}

// User, assistant and generation prompt. BOS may still be in front of the user's open.
Result<RoleTexts> split_turns(const Renderings& renderings) {
  const std::string& user_to_assistant = renderings.answered[1];
  const std::string& assistant_to_user = renderings.answered[2];
  // answered[3] is not looked at: some templates write the last answer unlike earlier ones (an empty thought).
  const std::string& end_of_answer = renderings.answered[4];
  const std::string& end_of_question = renderings.asked[3];
  const std::string& question_to_generation = renderings.generating[3];
  RoleTexts texts;
  texts.user.close = common_prefix(end_of_question, user_to_assistant);
  texts.assistant.open = user_to_assistant.substr(texts.user.close.size());
  texts.assistant.close = common_prefix(end_of_answer, assistant_to_user);
  texts.user.open = assistant_to_user.substr(texts.assistant.close.size());
  if (!question_to_generation.starts_with(texts.user.close)) {
    return cannot_split("it closes the user turn in two ways");
  }
  texts.generation_prompt = question_to_generation.substr(texts.user.close.size());
  if (renderings.generating[1] != user_to_assistant || renderings.generating[2] != assistant_to_user) {
    return cannot_split("it writes the same turns in two ways");
  }
  return texts;
}

// Settles where the answer ends and the next user turn opens, by the first user turn's open (without BOS).
Status settle_user_open(const std::string& first_open, RoleTexts& texts) {
  const std::string answer_to_user = texts.assistant.close + texts.user.open;
  if (!first_open.empty() && answer_to_user.ends_with(first_open)) {
    // What later turns have in front of it belongs to the answer before, be it a separator of turns.
    texts.assistant.close = answer_to_user.substr(0, answer_to_user.size() - first_open.size());
    texts.user.open = first_open;
    return {};
  }
  if (!first_open.ends_with(texts.user.open)) {
    return cannot_split("it opens the first user turn unlike later ones");
  }
  // A default system text is in front. White space that sets every turn off from the one before (MPT) goes with that
  // one: a conversation without a system text does not start with it.
  const std::string separator = common_leading_whitespace(texts.user.open, texts.assistant.open);
  texts.assistant.close += separator;
  texts.user.open.erase(0, separator.size());
  return {};
}

// The system text; where there is none, `system_unsupported` says why. `bos_opens_user_turns`: later ones, too.
void split_system(const ChatTemplate& chat_template, const std::string& bos, const LeadingBos& leading_bos,
                  bool bos_opens_user_turns, RoleTexts& texts) {
  const auto rendered = gaps_of(chat_template, {"system", "user"}, false);
  if (!rendered) {
    texts.system_unsupported = rendered.error().message;
    return;
  }
  const std::string open = leading_bos.removed_from((*rendered)[0]);
  std::string to_user = (*rendered)[1];
  if (to_user.ends_with(texts.user.open)) {
    to_user.resize(to_user.size() - texts.user.open.size());
    if (bos_opens_user_turns && to_user.ends_with(bos)) {
      to_user.resize(to_user.size() - bos.size());
    }
  } else if (open.starts_with(texts.user.open)) {
    texts.user_open_after_system = "";  // the system text stands inside the user's turn
  } else {
    texts.system_unsupported = "the model's chat template does not separate the system text from the user's turn";
    return;
  }
  texts.system.close = std::move(to_user);
  // A template may write more than asked for in front of the system text (Llama 3.1: dates). If the text starts as the
  // user's open does, but for the role's name, that is where the role's own text ends.
  const std::string own_open = with_system_for_user(texts.user.open);
  texts.system.open = own_open != texts.user.open && open.starts_with(own_open) ? own_open : open;
}

RoleTexts plain_texts() {
  RoleTexts texts;
  texts.system = {"", "\n\n"};
  texts.user = {"User: ", "\n\n"};
  texts.assistant = {"Assistant: ", "\n\n"};
  texts.generation_prompt = "Assistant:";
  return texts;
}

RoleTexts chatml_texts() {
  RoleTexts texts;
  texts.system = {"<|im_start|>system\n", "<|im_end|>\n"};
  texts.user = {"<|im_start|>user\n", "<|im_end|>\n"};
  texts.assistant = {"<|im_start|>assistant\n", "<|im_end|>\n"};
  texts.generation_prompt = "<|im_start|>assistant\n";
  return texts;
}

RoleTexts llama2_texts() {
  RoleTexts texts;
  texts.system = {"[INST] <<SYS>>\n", "\n<</SYS>>\n\n"};
  texts.user = {"[INST] ", " [/INST]"};
  texts.assistant = {" ", " </s>"};
  texts.user_open_after_system = "";
  texts.bos = "<s>";
  return texts;
}

// The family of built-in texts for a model without a usable template; empty if none is known.
std::string builtin_family(const checkpoint::ModelFiles& files) {
  constexpr const char* kDocument = "config.json";
  const std::optional<std::string> text = files.find(kDocument);
  if (!text) {
    return {};
  }
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw std::runtime_error(files.where(kDocument) + ": not a JSON object");
  }
  const std::string type = json.contains("model_type") && json["model_type"].is_string()
                               ? json["model_type"].get<std::string>()
                               : std::string();
  if (type == "falcon" || type == "RefinedWeb" || type == "RefinedWebModel") {
    return "falcon";
  }
  if (type == "mpt") {
    return "mpt";
  }
  // "llama" names a hundred models; Llama 2 and Code Llama are those with its vocabulary of 32,000 and a few.
  const auto vocab_size = json.find("vocab_size");
  const bool llama2 = type == "llama" && vocab_size != json.end() && vocab_size->is_number_integer() &&
                      *vocab_size >= 32000 && *vocab_size <= 32016;
  return llama2 ? "llama2" : "";
}

}  // namespace

Result<RoleTexts> split_role_texts(const ChatTemplate& chat_template, const std::string& bos) {
  const auto renderings = render_conversations(chat_template);
  if (!renderings) {
    return renderings.error();
  }
  auto texts = split_turns(*renderings);
  if (!texts) {
    return texts.error();
  }
  const LeadingBos leading_bos(bos, *texts);
  const bool bos_opens_user_turns = leading_bos.leads(texts->user.open);
  texts->user.open = leading_bos.removed_from(texts->user.open);
  const std::string& first_open = renderings->answered[0];
  if (const Status settled = settle_user_open(leading_bos.removed_from(first_open), *texts); !settled) {
    return settled.error();
  }
  split_system(chat_template, bos, leading_bos, bos_opens_user_turns, *texts);
  texts->bos = leading_bos.leads(first_open) ? bos : std::string();
  texts->origin = "chat template";
  return texts;
}

std::optional<RoleTexts> builtin_role_texts(const std::string& family) {
  std::optional<RoleTexts> texts;
  if (family == "chatml" || family == "mpt") {
    texts = chatml_texts();
  } else if (family == "llama2") {
    texts = llama2_texts();
  } else if (family == "falcon") {
    texts = plain_texts();
  }
  if (texts) {
    texts->origin = "built-in (" + family + ")";
  }
  return texts;
}

RoleTexts load_role_texts(const checkpoint::ModelFiles& files) {
  std::string reason = "the model has no chat template";
  if (const auto chat_template = load_chat_template(files)) {
    const std::string bos = read_tokenizer_config(files).special_token("bos_token");
    auto texts = split_role_texts(*chat_template, bos);
    if (texts) {
      return *std::move(texts);
    }
    reason = texts.error().message;
  }
  if (auto texts = builtin_role_texts(builtin_family(files))) {
    return *std::move(texts);
  }
  RoleTexts texts = plain_texts();
  texts.origin = "plain text (" + reason + ")";
  return texts;
}

}  // namespace promptcached
