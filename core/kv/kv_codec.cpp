#include "core/kv/kv_codec.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/rows.h"

namespace promptcached::kv {
namespace {

using Form = KvCodec::Form;
using Compression = KvCodec::Compression;

constexpr std::int32_t kTokensPerScale = 128;
// The fastest of zstd: KV has little to gain from a longer search.
constexpr int kZstdLevel = 1;
constexpr float kSteps = 255;
constexpr float kZeroByte = 128;  // of V, whose bytes stand for -127 to 127

bool is_format(Form form, kernels::KvFormat format) {
  return (form == Form::kFp16 && format == kernels::KvFormat::kFp16) ||
         (form == Form::kBf16 && format == kernels::KvFormat::kBf16);
}

kernels::KvFormat format_of(Form form) {
  return form == Form::kFp16 ? kernels::KvFormat::kFp16 : kernels::KvFormat::kBf16;
}

std::size_t scale_groups(std::int32_t tokens) {
  return static_cast<std::size_t>((tokens + kTokensPerScale - 1) / kTokensPerScale);
}

// Takes and gives floats at places without alignment.
void put_floats(const float* numbers, std::size_t count, std::byte*& out) {
  std::memcpy(out, numbers, count * sizeof(float));
  out += count * sizeof(float);
}
void get_floats(const std::byte*& in, std::size_t count, float* numbers) {
  std::memcpy(numbers, in, count * sizeof(float));
  in += count * sizeof(float);
}

}  // namespace

std::string_view to_string(Form form) {
  switch (form) {
    case Form::kRaw:
      return "raw";
    case Form::kFp16:
      return "fp16";
    case Form::kBf16:
      return "bf16";
    case Form::kInt8:
      return "int8";
  }
  return "raw";
}

std::string_view to_string(Compression compression) {
  switch (compression) {
    case Compression::kNone:
      return "none";
    case Compression::kZstd:
      return "zstd";
    case Compression::kLz4:
      return "lz4";
  }
  return "none";
}

PlaneCodec::PlaneCodec(const KvCodec& codec, const KvGeometry& geometry, std::int32_t tokens)
    : codec_(codec),
      geometry_(geometry),
      tokens_(tokens),
      row_(static_cast<std::size_t>(geometry.head_dim)),
      low_(row_.size()),
      high_(row_.size()) {
  if (is_format(codec_.form, geometry.format)) {
    codec_.form = Form::kRaw;
  }
}

std::size_t PlaneCodec::form_bytes(std::int32_t index) const {
  const auto heads = static_cast<std::size_t>(geometry_.kv_heads);
  const auto tokens = static_cast<std::size_t>(tokens_);
  const auto channels = static_cast<std::size_t>(geometry_.head_dim);
  switch (codec_.form) {
    case Form::kRaw:
      return plane_bytes();
    case Form::kFp16:
    case Form::kBf16:
      return heads * tokens * channels * 2;
    case Form::kInt8:
      break;
  }
  const std::size_t scales = index % 2 == 0 ? scale_groups(tokens_) * channels * 2 : tokens;
  return heads * (tokens * channels + scales * sizeof(float));
}

std::size_t PlaneCodec::max_encoded_bytes() const {
  const std::size_t form = std::max(form_bytes(0), form_bytes(1));
  switch (codec_.compression) {
    case Compression::kNone:
      return form;
    case Compression::kZstd:
      return ZSTD_compressBound(form);
    case Compression::kLz4:
      return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(form)));
  }
  return form;
}

std::span<const std::byte> PlaneCodec::encode(std::int32_t index, const std::byte* plane) {
  return compress(to_form(index, plane));
}

bool PlaneCodec::decode(std::int32_t index, std::span<const std::byte> encoded, std::byte* plane) {
  const std::size_t bytes = form_bytes(index);
  if (codec_.compression == Compression::kNone) {
    if (encoded.size() != bytes) {
      return false;
    }
    from_form(index, encoded.data(), plane);
    return true;
  }
  if (codec_.form == Form::kRaw) {
    return decompress(encoded, {plane, bytes});
  }
  form_.resize(bytes);
  if (!decompress(encoded, form_)) {
    return false;
  }
  from_form(index, form_.data(), plane);
  return true;
}

std::span<const std::byte> PlaneCodec::to_form(std::int32_t index, const std::byte* plane) {
  if (codec_.form == Form::kRaw) {
    return {plane, plane_bytes()};
  }
  form_.resize(form_bytes(index));
  if (codec_.form == Form::kInt8) {
    index % 2 == 0 ? quantise_k(plane, form_.data()) : quantise_v(plane, form_.data());
    return form_;
  }
  std::byte* out = form_.data();
  for (std::int32_t row = 0; row < geometry_.kv_heads * tokens_; ++row) {
    kernels::load_as(geometry_.format, plane + static_cast<std::size_t>(row) * row_bytes(), geometry_.head_dim,
                     row_.data());
    kernels::store_as(format_of(codec_.form), row_.data(), geometry_.head_dim, out);
    out += row_.size() * 2;
  }
  return form_;
}

void PlaneCodec::from_form(std::int32_t index, const std::byte* form, std::byte* plane) {
  if (codec_.form == Form::kRaw) {
    std::memcpy(plane, form, plane_bytes());
    return;
  }
  if (codec_.form == Form::kInt8) {
    index % 2 == 0 ? restore_k(form, plane) : restore_v(form, plane);
    return;
  }
  for (std::int32_t row = 0; row < geometry_.kv_heads * tokens_; ++row) {
    kernels::load_as(format_of(codec_.form), form, geometry_.head_dim, row_.data());
    kernels::store_as(geometry_.format, row_.data(), geometry_.head_dim,
                      plane + static_cast<std::size_t>(row) * row_bytes());
    form += row_.size() * 2;
  }
}

// For each head and group of tokens: the least number and the step of each channel, then the bytes.
void PlaneCodec::quantise_k(const std::byte* plane, std::byte* out) {
  const std::size_t channels = row_.size();
  std::vector<float> rows(static_cast<std::size_t>(kTokensPerScale) * channels);
  for (std::int32_t head = 0; head < geometry_.kv_heads; ++head) {
    for (std::int32_t begin = 0; begin < tokens_; begin += kTokensPerScale) {
      const auto count = static_cast<std::size_t>(std::min(kTokensPerScale, tokens_ - begin));
      kernels::load_as(geometry_.format, plane, static_cast<std::int64_t>(count * channels), rows.data());
      plane += count * row_bytes();
      std::copy_n(rows.begin(), channels, low_.begin());
      high_ = low_;
      for (std::size_t i = channels; i < count * channels; i += channels) {
        for (std::size_t c = 0; c < channels; ++c) {
          low_[c] = std::min(low_[c], rows[i + c]);
          high_[c] = std::max(high_[c], rows[i + c]);
        }
      }
      for (std::size_t c = 0; c < channels; ++c) {
        high_[c] = (high_[c] - low_[c]) / kSteps;  // the step, from here on
        row_[c] = high_[c] > 0 ? 1 / high_[c] : 0;
      }
      put_floats(low_.data(), channels, out);
      put_floats(high_.data(), channels, out);
      auto* bytes = reinterpret_cast<std::uint8_t*>(out);
      for (std::size_t i = 0; i < count * channels; i += channels) {
        for (std::size_t c = 0; c < channels; ++c) {
          const float step = (rows[i + c] - low_[c]) * row_[c] + 0.5F;
          bytes[i + c] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(kSteps, step)));
        }
      }
      out += count * channels;
    }
  }
}

void PlaneCodec::restore_k(const std::byte* form, std::byte* plane) {
  const std::size_t channels = row_.size();
  for (std::int32_t head = 0; head < geometry_.kv_heads; ++head) {
    for (std::int32_t begin = 0; begin < tokens_; begin += kTokensPerScale) {
      const std::int32_t count = std::min(kTokensPerScale, tokens_ - begin);
      get_floats(form, channels, low_.data());
      get_floats(form, channels, high_.data());
      for (std::int32_t token = 0; token < count; ++token) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(form);
        for (std::size_t c = 0; c < channels; ++c) {
          row_[c] = low_[c] + static_cast<float>(static_cast<std::int32_t>(bytes[c])) * high_[c];
        }
        kernels::store_as(geometry_.format, row_.data(), geometry_.head_dim, plane);
        form += channels;
        plane += row_bytes();
      }
    }
  }
}

// For each head and token: the step, then the bytes.
void PlaneCodec::quantise_v(const std::byte* plane, std::byte* out) {
  const std::size_t channels = row_.size();
  for (std::int32_t row = 0; row < geometry_.kv_heads * tokens_; ++row) {
    kernels::load_as(geometry_.format, plane, geometry_.head_dim, row_.data());
    float largest = 0;
    for (const float number : row_) {
      largest = std::max(largest, std::abs(number));
    }
    const float step = largest / (kZeroByte - 1);
    const float steps = step > 0 ? 1 / step : 0;
    put_floats(&step, 1, out);
    auto* bytes = reinterpret_cast<std::uint8_t*>(out);
    for (std::size_t c = 0; c < channels; ++c) {
      const float rounded = row_[c] * steps + (kZeroByte + 0.5F);
      bytes[c] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(kSteps, rounded)));
    }
    out += channels;
    plane += row_bytes();
  }
}

void PlaneCodec::restore_v(const std::byte* form, std::byte* plane) {
  const std::size_t channels = row_.size();
  for (std::int32_t row = 0; row < geometry_.kv_heads * tokens_; ++row) {
    float step = 0;
    get_floats(form, 1, &step);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(form);
    for (std::size_t c = 0; c < channels; ++c) {
      row_[c] = (static_cast<float>(static_cast<std::int32_t>(bytes[c])) - kZeroByte) * step;
    }
    kernels::store_as(geometry_.format, row_.data(), geometry_.head_dim, plane);
    form += channels;
    plane += row_bytes();
  }
}

std::span<const std::byte> PlaneCodec::compress(std::span<const std::byte> form) {
  if (codec_.compression == Compression::kNone) {
    return form;
  }
  compressed_.resize(max_encoded_bytes());
  if (codec_.compression == Compression::kZstd) {
    const std::size_t size =
        ZSTD_compress(compressed_.data(), compressed_.size(), form.data(), form.size(), kZstdLevel);
    assert(ZSTD_isError(size) == 0);
    return {compressed_.data(), size};
  }
  const int size =
      LZ4_compress_default(reinterpret_cast<const char*>(form.data()), reinterpret_cast<char*>(compressed_.data()),
                           static_cast<int>(form.size()), static_cast<int>(compressed_.size()));
  assert(size > 0 || form.empty());
  return {compressed_.data(), static_cast<std::size_t>(size)};
}

bool PlaneCodec::decompress(std::span<const std::byte> encoded, std::span<std::byte> form) const {
  if (codec_.compression == Compression::kZstd) {
    return ZSTD_decompress(form.data(), form.size(), encoded.data(), encoded.size()) == form.size();
  }
  if (encoded.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return false;
  }
  return LZ4_decompress_safe(reinterpret_cast<const char*>(encoded.data()), reinterpret_cast<char*>(form.data()),
                             static_cast<int>(encoded.size()),
                             static_cast<int>(form.size())) == static_cast<int>(form.size());
}

}  // namespace promptcached::kv
