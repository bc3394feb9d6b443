#include "core/guide/grammar.h"

#include <utility>

#include "core/guide/llg_call.h"

namespace promptcached::guide {

Status Matcher::write_mask(TokenMask& mask) {
  LlgMessage message;
  const PcLlgStatus status = pc_llg_matcher_mask(handle_.get(), mask.data(), mask.size(), message.out());
  return status == kPcLlgOk ? Status() : llg_error(status, message, param_);
}

Result<bool> Matcher::accept(TokenId token) {
  int is_over = 0;
  LlgMessage message;
  const PcLlgStatus status = pc_llg_matcher_accept(handle_.get(), token, &is_over, message.out());
  if (status != kPcLlgOk) {
    return llg_error(status, message, param_);
  }
  return is_over != 0;
}

Result<Matcher> Grammar::start() const {
  PcLlgMatcher* raw = nullptr;
  LlgMessage message;
  const PcLlgStatus status = pc_llg_matcher_new(handle_.get(), &raw, message.out());
  if (status != kPcLlgOk) {
    return llg_error(status, message, param_);
  }
  return Matcher(MatcherHandle(raw), param_);
}

}  // namespace promptcached::guide
