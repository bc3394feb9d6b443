#include "core/base/log.h"

#include <fmt/args.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cmath>
#include <memory>
#include <utility>

#include "core/base/utf8.h"

namespace promptcached::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      break;
  }
  return spdlog::level::off;
}

std::string_view name_of(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarn:
      return "warn";
    case Level::kError:
      return "error";
    case Level::kOff:
      break;
  }
  return "off";
}

struct Writer {
  std::shared_ptr<spdlog::logger> logger;
  Format format = Format::kText;
};

Writer make_writer(const Options& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (options.output == nullptr) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*options.output, /*force_flush=*/true);
  }
  // spdlog adds the time; the rest of the line is ours, so that it is escaped as its format wants.
  const std::string pattern =
      options.format == Format::kJson ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ",%v})" : "%Y-%m-%dT%H:%M:%S.%eZ %v";
  sink->set_formatter(
      std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc, /*eol=*/"\n"));
  auto logger = std::make_shared<spdlog::logger>("promptcached", std::move(sink));
  logger->set_level(to_spdlog(options.level));
  return {std::move(logger), options.format};
}

Writer& writer() {
  static Writer instance = make_writer(Options{});
  return instance;
}

// Appends `text` with what would end the line or the JSON string escaped, and invalid UTF-8 replaced.
void append_escaped(std::string& out, std::string_view text, bool escape_quotes) {
  for (const char c : replace_invalid_utf8(text)) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      if (escape_quotes && (c == '"' || c == '\\')) {
        out += '\\';
      }
      out += c;
    }
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text, /*escape_quotes=*/true);
  out += '"';
}

// Numbers and booleans look the same in both formats; JSON has no NaN or infinity.
void append_value(std::string& out, const Value& value, Format format) {
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string_view>) {
          const bool plain = !v.empty() && v.find_first_of(" =\"\\\t\r\n") == std::string_view::npos;
          if (format == Format::kText && plain) {
            append_escaped(out, v, /*escape_quotes=*/false);
          } else {
            append_quoted(out, v);
          }
        } else if constexpr (std::is_same_v<T, double>) {
          out += format == Format::kJson && !std::isfinite(v) ? "null" : fmt::format("{}", v);
        } else {
          out += fmt::format("{}", v);
        }
      },
      value.get());
}

// info [request-id] message name=value
std::string text_line(Level level, RequestId request_id, std::string_view message,
                      std::initializer_list<Field> fields) {
  std::string line(name_of(level));
  if (!request_id.value.empty()) {
    line += " [";
    append_escaped(line, request_id.value, /*escape_quotes=*/false);
    line += ']';
  }
  line += ' ';
  append_escaped(line, message, /*escape_quotes=*/false);
  for (const Field& field : fields) {
    line += ' ';
    line += field.name;
    line += '=';
    append_value(line, field.value, Format::kText);
  }
  return line;
}

// The members of the JSON object after "time".
std::string json_members(Level level, RequestId request_id, std::string_view message,
                         std::initializer_list<Field> fields) {
  std::string members = R"("level":)";
  append_quoted(members, name_of(level));
  if (!request_id.value.empty()) {
    members += R"(,"request_id":)";
    append_quoted(members, request_id.value);
  }
  members += R"(,"message":)";
  append_quoted(members, message);
  for (const Field& field : fields) {
    members += ',';
    append_quoted(members, field.name);
    members += ':';
    append_value(members, field.value, Format::kJson);
  }
  return members;
}

}  // namespace

std::optional<Level> parse_level(std::string_view name) {
  for (const Level level : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError, Level::kOff}) {
    if (name == name_of(level)) {
      return level;
    }
  }
  return std::nullopt;
}

std::optional<Format> parse_format(std::string_view name) {
  if (name == "text") {
    return Format::kText;
  }
  if (name == "json") {
    return Format::kJson;
  }
  return std::nullopt;
}

void configure(const Options& options) { writer() = make_writer(options); }

bool enabled(Level level) { return level != Level::kOff && writer().logger->should_log(to_spdlog(level)); }

void write(Level level, RequestId request_id, std::string_view message, std::initializer_list<Field> fields) {
  if (!enabled(level)) {
    return;
  }
  const std::string line = writer().format == Format::kJson ? json_members(level, request_id, message, fields)
                                                            : text_line(level, request_id, message, fields);
  writer().logger->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

namespace detail {

void placeholders_and_arguments_differ_in_number() {}

void format_and_write(Level level, RequestId request_id, std::string_view format, std::span<const Value> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const Value& argument : arguments) {
    std::visit([&store](const auto& v) { store.push_back(v); }, argument.get());
  }
  std::string message;
  try {
    message = fmt::vformat(fmt::string_view(format.data(), format.size()), store);
  } catch (const fmt::format_error& error) {
    // A format specifier that does not fit its argument: our own fault, but no reason to lose the event.
    message = fmt::format("{} (log format error: {})", std::string(format), error.what());
  }
  write(level, request_id, message);
}

}  // namespace detail
}  // namespace promptcached::log
