// TokenizerConfig: what a Hugging Face directory says about its tokenizer beside tokenizer.json.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace promptcached {

struct TokenizerConfig {
  // By name, as chat templates know them: "bos_token" -> "<s>". Names the model leaves empty are not there.
  std::map<std::string, std::string> special_tokens;
  std::optional<bool> add_bos_token;
  std::optional<std::string> chat_template;

  // The spelling of a special token; empty if there is none.
  std::string special_token(const std::string& name) const;
};

// Reads tokenizer_config.json, special_tokens_map.json (for names the first leaves out) and chat_template.jinja (which
// wins over the first's), as far as they are there. Throws std::runtime_error naming the file that is broken.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_directory);

// The whole of a file. Throws std::runtime_error naming it when it is missing or unreadable.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace promptcached
