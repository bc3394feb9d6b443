#include "server/units.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

namespace promptcached::server {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr Unit kByteUnits[] = {
    {"TiB", 1ULL << 40},
    {"GiB", 1ULL << 30},
    {"MiB", 1ULL << 20},
    {"KiB", 1ULL << 10},
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000ULL},
    {"MB", 1'000'000ULL},
    {"KB", 1000},
    {"B", 1},
    {"", 1},
};
constexpr Unit kDurationUnits[] = {{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};

// A decimal number, perhaps with a fraction, and a unit directly behind it.
template <std::size_t kCount>
std::optional<double> parse_quantity(std::string_view text, const Unit (&units)[kCount]) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (parsed.ec != std::errc{} || number < 0) {
    return std::nullopt;
  }
  std::string_view unit(parsed.ptr, static_cast<std::size_t>(text.data() + text.size() - parsed.ptr));
  for (const Unit& known : units) {
    if (unit == known.name) {
      const double quantity = std::floor(number * static_cast<double>(known.factor));
      constexpr double kExact = 9007199254740992.0;  // 2^53: eight petabytes are enough
      return quantity <= kExact ? std::optional(quantity) : std::nullopt;
    }
  }
  return std::nullopt;
}

template <std::size_t kCount>
std::string show(std::uint64_t quantity, const Unit (&units)[kCount]) {
  for (const Unit& unit : units) {
    if (quantity % unit.factor == 0 && (quantity != 0 || unit.factor == 1)) {
      return std::to_string(quantity / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(quantity);
}

}  // namespace

std::optional<std::size_t> parse_bytes(std::string_view text) {
  const auto quantity = parse_quantity(text, kByteUnits);
  return quantity ? std::optional(static_cast<std::size_t>(*quantity)) : std::nullopt;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto quantity = parse_quantity(text, kDurationUnits);
  return quantity ? std::optional(std::chrono::milliseconds(static_cast<std::int64_t>(*quantity))) : std::nullopt;
}

std::string show_bytes(std::size_t bytes) { return show(bytes, kByteUnits); }

std::string show_duration(std::chrono::milliseconds duration) {
  const auto count = static_cast<std::uint64_t>(duration.count());
  constexpr Unit kShown[] = {{"s", 1000}, {"ms", 1}};  // "600s" is how the documentation says it
  return show(count, kShown);
}

}  // namespace promptcached::server
