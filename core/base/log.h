// Logging: one line an event, to stderr, as text or JSON.
//
//   log::info("listening on {}:{}", host, port);
//   log::warn(log::RequestId{id}, "module {} evicted while it was encoded", name);
//   log::write(log::Level::kInfo, log::RequestId{id}, "request done", {{"status", 200}, {"ttft_ms", 34.2}});
//
// Logs never hold prompt text; whoever wants it turns --log-prompts on, and the caller checks that.
//
// spdlog and fmt stay in log.cpp: libtorch brings an fmt of its own in its include directory, and a file that includes
// both would mix two versions. Arguments travel as the few kinds of value below instead, and a format string with the
// wrong number of placeholders does not compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace promptcached::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };
enum class Format { kText, kJson };

// "debug", "info", "warn", "error", "off".
std::optional<Level> parse_level(std::string_view name);
// "text", "json".
std::optional<Format> parse_format(std::string_view name);

struct Options {
  Level level = Level::kInfo;
  Format format = Format::kText;
  std::ostream* output = nullptr;  // null: stderr. Must outlive logging
};

// Call once, before other threads log. Without it: Options' defaults.
void configure(const Options& options);

// True when an event of this level is written: to skip work that only a log line needs.
bool enabled(Level level);

// Names the request an event belongs to; empty: none.
struct RequestId {
  std::string_view value;
};

// One argument or field value. Refers to the text it was made from, so it lives no longer than the call.
class Value final {
 public:
  Value(bool value) : value_(value) {}  // NOLINT(google-explicit-constructor)
  template <std::signed_integral T>
  Value(T value) : value_(static_cast<std::int64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  template <std::unsigned_integral T>
  Value(T value) : value_(static_cast<std::uint64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  template <std::floating_point T>
  Value(T value) : value_(static_cast<double>(value)) {}                // NOLINT(google-explicit-constructor)
  Value(std::string_view value) : value_(value) {}                      // NOLINT(google-explicit-constructor)
  Value(const std::string& value) : value_(std::string_view(value)) {}  // NOLINT(google-explicit-constructor)
  Value(const char* value) : value_(std::string_view(value)) {}         // NOLINT(google-explicit-constructor)

  using Variant = std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view>;
  const Variant& get() const { return value_; }

 private:
  Variant value_;
};

struct Field {
  std::string_view name;  // snake_case; in JSON a member of its own
  Value value;
};

// The event `message`, as it stands, with fields.
void write(Level level, RequestId request_id, std::string_view message, std::initializer_list<Field> fields = {});

namespace detail {

// Not constexpr, so that reaching it while a format string is checked stops the compilation with its name.
void placeholders_and_arguments_differ_in_number();

// A format string whose number of `{}` (or `{:spec}`) placeholders was checked at compile time.
template <std::size_t kArguments>
class FormatString final {
 public:
  template <typename Text>
    requires std::convertible_to<const Text&, std::string_view>
  consteval FormatString(const Text& text) : text_(text) {  // NOLINT(google-explicit-constructor)
    if (count_placeholders(text_) != kArguments) {
      placeholders_and_arguments_differ_in_number();
    }
  }
  constexpr std::string_view text() const { return text_; }

 private:
  static constexpr std::size_t count_placeholders(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '{') {
        if (i + 1 < text.size() && text[i + 1] == '{') {
          ++i;
        } else {
          ++count;
        }
      }
    }
    return count;
  }

  std::string_view text_;
};

void format_and_write(Level level, RequestId request_id, std::string_view format, std::span<const Value> arguments);

template <typename... Args>
void log(Level level, RequestId request_id, std::string_view format, const Args&... args) {
  if (!enabled(level)) {
    return;
  }
  if constexpr (sizeof...(Args) == 0) {
    format_and_write(level, request_id, format, {});
  } else {
    const Value arguments[] = {Value(args)...};
    format_and_write(level, request_id, format, arguments);
  }
}

}  // namespace detail

// Format strings are fmt's: "{}", "{:.1f}", "{{" for a brace.
template <typename... Args>
void debug(detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kDebug, {}, format.text(), args...);
}
template <typename... Args>
void info(detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kInfo, {}, format.text(), args...);
}
template <typename... Args>
void warn(detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kWarn, {}, format.text(), args...);
}
template <typename... Args>
void error(detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kError, {}, format.text(), args...);
}

template <typename... Args>
void debug(RequestId request_id, detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kDebug, request_id, format.text(), args...);
}
template <typename... Args>
void info(RequestId request_id, detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kInfo, request_id, format.text(), args...);
}
template <typename... Args>
void warn(RequestId request_id, detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kWarn, request_id, format.text(), args...);
}
template <typename... Args>
void error(RequestId request_id, detail::FormatString<sizeof...(Args)> format, const Args&... args) {
  detail::log(Level::kError, request_id, format.text(), args...);
}

}  // namespace promptcached::log
