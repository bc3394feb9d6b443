// A strict reader of the Prometheus text format, as far as promptcached writes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace promptcached {

struct Exposition {
  using Labels = std::map<std::string, std::string>;
  std::map<std::string, std::string> types;                       // family -> counter, gauge, histogram
  std::map<std::pair<std::string, Labels>, double> samples;       // (sample name, labels) -> value
  std::map<std::string, std::vector<std::string>> bucket_bounds;  // family -> `le`s in order, of its first series

  // The one sample with this name and these labels; NaN when it is not there.
  double at(const std::string& name, const Labels& labels = {}) const {
    const auto found = samples.find({name, labels});
    return found == samples.end() ? std::nan("") : found->second;
  }
  // Every value of `label` among the samples of this name.
  std::set<std::string> values_of(const std::string& name, const std::string& label) const {
    std::set<std::string> values;
    for (const auto& [key, value] : samples) {
      if (key.first == name && key.second.count(label) > 0) {
        values.insert(key.second.at(label));
      }
    }
    return values;
  }
};

namespace detail {

[[noreturn]] inline void refuse(const std::string& line, const char* why) {
  throw std::runtime_error(std::string(why) + ": " + line);
}

// Reads {a="b",...} from `at`, which is moved past it.
inline Exposition::Labels read_labels(const std::string& line, std::size_t& at) {
  Exposition::Labels labels;
  if (at >= line.size() || line[at] != '{') {
    return labels;
  }
  ++at;
  while (line.at(at) != '}') {
    const std::size_t equals = line.find("=\"", at);
    if (equals == std::string::npos) {
      refuse(line, "label without a value");
    }
    const std::string name = line.substr(at, equals - at);
    std::string value;
    at = equals + 2;
    for (; line.at(at) != '"'; ++at) {
      if (line[at] == '\\') {
        ++at;
        value += line.at(at) == 'n' ? '\n' : line[at];
      } else {
        value += line[at];
      }
    }
    if (!labels.emplace(name, value).second) {
      refuse(line, "label twice");
    }
    ++at;
    if (line.at(at) == ',') {
      ++at;
    }
  }
  ++at;
  return labels;
}

}  // namespace detail

// Throws std::runtime_error on a line that is not in the format, a sample without a type, and a sample given twice.
inline Exposition parse_exposition(const std::string& text) {
  Exposition result;
  if (text.empty() || text.back() != '\n') {
    detail::refuse(text, "no line feed at the end");
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) {
      std::istringstream words(line.substr(7));
      std::string name;
      std::string type;
      words >> name >> type;
      if (!result.types.emplace(name, type).second) {
        detail::refuse(line, "family twice");
      }
      continue;
    }
    if (line.rfind("# HELP ", 0) == 0) {
      continue;
    }
    std::size_t at = line.find_first_of("{ ");
    if (at == std::string::npos || at == 0) {
      detail::refuse(line, "no sample");
    }
    const std::string name = line.substr(0, at);
    Exposition::Labels labels = detail::read_labels(line, at);
    char* end = nullptr;
    const double value = std::strtod(line.c_str() + at, &end);
    if (line.at(at) != ' ' || *end != '\0' || end == line.c_str() + at) {
      detail::refuse(line, "no value");
    }
    std::string family = name;
    for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
      const std::size_t cut = name.size() - std::min(name.size(), suffix.size());
      if (name.substr(cut) == suffix && result.types.count(name.substr(0, cut)) > 0) {
        family = name.substr(0, cut);
      }
    }
    if (result.types.count(family) == 0) {
      detail::refuse(line, "sample without a type");
    }
    if (labels.count("le") > 0) {
      auto& bounds = result.bucket_bounds[family];
      if (bounds.empty() || bounds.back() != "+Inf") {
        bounds.push_back(labels["le"]);
      }
    }
    if (!result.samples.emplace(std::pair(name, labels), value).second) {
      detail::refuse(line, "sample twice");
    }
  }
  return result;
}

}  // namespace promptcached
