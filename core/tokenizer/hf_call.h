// Calls into the Rust library (hf/hf.h) with its buffers owned and its failures as Result.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/tokenizer/hf/hf.h"

namespace promptcached {

// Owns a buffer that the library handed out.
template <typename Buffer, void (*Free)(Buffer)>
class HfBuffer final {
 public:
  HfBuffer() = default;
  HfBuffer(const HfBuffer&) = delete;
  HfBuffer& operator=(const HfBuffer&) = delete;
  ~HfBuffer() { Free(buffer_); }

  Buffer* out() { return &buffer_; }
  auto* begin() const { return buffer_.data; }
  auto* end() const { return buffer_.data + buffer_.size; }
  std::size_t size() const { return buffer_.size; }

 private:
  Buffer buffer_ = {};
};

using HfBytes = HfBuffer<PcHfBytes, pc_hf_bytes_free>;
using HfIds = HfBuffer<PcHfIds, pc_hf_ids_free>;
using HfPieces = HfBuffer<PcHfPieces, pc_hf_pieces_free>;

inline std::string to_string(const HfBytes& bytes) { return std::string(bytes.begin(), bytes.size()); }

// The library's refusal as an Error. `what` names the part at work: "tokenizer", "chat template".
inline Error hf_error(PcHfStatus status, const HfBytes& message, std::string_view what) {
  switch (status) {
    case kPcHfInvalidText:
    case kPcHfRaised:
      return make_error(ErrorCode::kInvalidField, to_string(message));
    default:
      return make_error(ErrorCode::kInternal, std::string(what) + ": " + to_string(message));
  }
}

template <typename Handle, void (*Free)(Handle*)>
struct HfFree {
  void operator()(Handle* handle) const { Free(handle); }
};

using HfTokenizerHandle = std::unique_ptr<PcHfTokenizer, HfFree<PcHfTokenizer, pc_hf_tokenizer_free>>;
using HfTemplateHandle = std::unique_ptr<PcHfTemplate, HfFree<PcHfTemplate, pc_hf_template_free>>;

}  // namespace promptcached
