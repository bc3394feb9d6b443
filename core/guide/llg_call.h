// Calls into the Rust library (llg/llg.h) with its messages owned and its failures as Error.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/guide/llg/llg.h"

namespace promptcached::guide {

class LlgMessage final {
 public:
  LlgMessage() = default;
  LlgMessage(const LlgMessage&) = delete;
  LlgMessage& operator=(const LlgMessage&) = delete;
  ~LlgMessage() { pc_llg_bytes_free(bytes_); }

  PcLlgBytes* out() { return &bytes_; }
  std::string text() const { return std::string(bytes_.data, bytes_.size); }

 private:
  PcLlgBytes bytes_ = {};
};

// `param`: the field whose constraint it was.
inline Error llg_error(PcLlgStatus status, const LlgMessage& message, const std::string& param) {
  if (status == kPcLlgRefused) {
    return make_error(ErrorCode::kInvalidField, param + ": " + message.text(), param);
  }
  return make_error(ErrorCode::kInternal, "llguidance: " + message.text());
}

}  // namespace promptcached::guide
