#include "core/base/sha256.h"

#include <openssl/evp.h>

#include <stdexcept>
#include <utility>

namespace promptcached {
namespace {

constexpr char kText = 't';
constexpr char kNumber = 'n';
constexpr char kBytes = 'b';
constexpr char kNumbers = 'l';

// SHA-256 itself cannot fail; OpenSSL can only be out of memory or built without it.
void require(bool ok) {
  if (!ok) {
    throw std::runtime_error("OpenSSL cannot compute SHA-256");
  }
}

std::array<std::uint8_t, 8> little_endian(std::uint64_t value) {
  std::array<std::uint8_t, 8> bytes{};
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>(value);
    value >>= 8;
  }
  return bytes;
}

}  // namespace

struct Sha256::Context {
  Context() : evp(EVP_MD_CTX_new()) { require(evp != nullptr); }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  EVP_MD_CTX* evp;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  require(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, std::size_t size) { require(EVP_DigestUpdate(context_->evp, data, size) == 1); }

void Sha256::begin_field(std::string_view tag, char kind, std::size_t count) {
  const auto tag_size = little_endian(tag.size());
  update(tag_size.data(), tag_size.size());
  update(tag.data(), tag.size());
  update(&kind, 1);
  const auto payload_count = little_endian(count);
  update(payload_count.data(), payload_count.size());
}

Sha256& Sha256::update_field(std::string_view tag, std::string_view text) {
  begin_field(tag, kText, text.size());
  update(text.data(), text.size());
  return *this;
}

Sha256& Sha256::update_field(std::string_view tag, std::int64_t number) {
  begin_field(tag, kNumber, 1);
  const auto bytes = little_endian(static_cast<std::uint64_t>(number));
  update(bytes.data(), bytes.size());
  return *this;
}

Sha256& Sha256::update_field(std::string_view tag, std::span<const std::byte> bytes) {
  begin_field(tag, kBytes, bytes.size());
  update(bytes.data(), bytes.size());
  return *this;
}

Sha256& Sha256::update_field(std::string_view tag, std::span<const std::int32_t> numbers) {
  begin_field(tag, kNumbers, numbers.size());
  for (const std::int64_t number : numbers) {
    const auto bytes = little_endian(static_cast<std::uint64_t>(number));
    update(bytes.data(), bytes.size());
  }
  return *this;
}

Sha256& Sha256::update_field(std::string_view tag, std::span<const std::int64_t> numbers) {
  begin_field(tag, kNumbers, numbers.size());
  for (const std::int64_t number : numbers) {
    const auto bytes = little_endian(static_cast<std::uint64_t>(number));
    update(bytes.data(), bytes.size());
  }
  return *this;
}

Sha256::Digest Sha256::digest() const {
  // Finishing ends an OpenSSL context, so a copy is finished.
  const Context copy;
  Digest digest{};
  unsigned int size = 0;
  require(EVP_MD_CTX_copy_ex(copy.evp, context_->evp) == 1);
  require(EVP_DigestFinal_ex(copy.evp, digest.data(), &size) == 1 && size == digest.size());
  return digest;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace promptcached
