// TokenizerConfig: what a Hugging Face directory says about its tokenizer beside tokenizer.json.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/checkpoint/model_files.h"

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
TokenizerConfig read_tokenizer_config(const checkpoint::ModelFiles& files);

}  // namespace promptcached
