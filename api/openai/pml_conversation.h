// PmlConversation: a conversation that names modules, written as a PML prompt.
//
// Modules have their places in their schema, so the messages' texts follow all of them, wherever a message names one.
#pragma once

#include <string>
#include <string_view>

#include "api/json_reader.h"
#include "api/wire/fidelity.h"
#include "core/base/status.h"

namespace promptcached::api {

// Errors of all calls: kInvalidField, about the field `where`.
class PmlConversation final {
 public:
  // {"schema": "travel", "modules": {"maui": {"days": "three"}, "outer/inner": {}}}, in front of the messages. May also
  // say the `fidelity`, which is then set.
  Status add_prompt_cache(InputJson& prompt_cache, Fidelity& fidelity);

  Status open_message(const std::string& role, const std::string& where);
  void add_text(std::string_view text);
  // {"type": "module", "schema": "travel", "name": "maui", "args": {"days": "three"}}
  Status add_module(InputJson& part, const std::string& where);
  void close_message();

  bool names_modules() const { return !schema_.empty(); }
  std::string prompt() const;

 private:
  Status use_schema(const std::string& schema, const std::string& where);
  Status add_import(std::string_view path, const InputJson* arguments, const std::string& where);

  std::string schema_;
  std::string imports_;
  std::string messages_;
  // Of the open message.
  std::string role_;
  std::string text_;
  bool only_modules_ = false;  // unless there is text as well
};

}  // namespace promptcached::api
