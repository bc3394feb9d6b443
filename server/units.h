// Sizes and durations as people write them in configuration.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace promptcached::server {

// "512MiB", "8GiB", "64KiB", "1TiB", "8GB" (powers of ten), "4096" (bytes). Nullopt: none of these, or too large.
std::optional<std::size_t> parse_bytes(std::string_view text);
// "600s", "500ms", "10m", "1h". A number alone is refused: nobody should have to guess its unit.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// The shortest exact spelling: "8MiB", "600s".
std::string show_bytes(std::size_t bytes);
std::string show_duration(std::chrono::milliseconds duration);

}  // namespace promptcached::server
