// Random schemas and prompts: whatever they are, positions, passes and plans hold together.
#include <random>
#include <string>
#include <vector>

#include "tests/unit/pml/encoding_oracle.h"
#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

class Generator final {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::string schema() {
    const char* modes[] = {"isolated", "rooted", "contextual"};
    const char* rules[] = {"edges", "reference"};
    std::string source = std::string("<schema name=\"s\" attention=\"") + modes[below(3)] + "\" whitespace=\"" +
                         rules[below(4) == 0 ? 1 : 0] + "\">" + items(3, true);
    for (int i = below(4); i > 0 && paths_.size() > 2; --i) {
      // May be refused: members of one union, or a module twice.
      source += "<scaffold modules=\"";
      for (int member = 2 + below(3); member > 0; --member) {
        source += paths_[static_cast<std::size_t>(below(static_cast<int>(paths_.size())))] + " ";
      }
      source += "\"/>";
    }
    return source + "</schema>";
  }

  // A prompt that imports some of the schema's modules, in any order.
  std::string prompt(const Schema& schema) {
    return "<prompt schema=\"s\">" + imports(schema, kRoot, true) + (below(3) == 0 ? "" : text()) + "</prompt>";
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  std::string text() {
    const char* pieces[] = {"a", " b", "\n", "\n  ", " c d", ".", "<user>", "</user>", "<assistant>", " ", "<!-- -->"};
    std::string result;
    for (int i = below(5); i > 0; --i) {
      result += pieces[below(11)];
    }
    return result;
  }

  std::string items(int depth, bool is_root) {
    std::string result = text();
    for (int i = below(4); i > 0; --i) {
      const int kind = below(4);
      if (kind == 0 && !is_root) {
        result += "<param name=\"p" + std::to_string(++names_) + "\" len=\"" + std::to_string(below(4)) + "\"" +
                  (below(2) == 0 ? "/>" : " scaffold=\"\"/>");
      } else if (kind == 1 && depth > 0) {
        std::string members;
        const int count = below(4);
        std::string first;
        for (int member = 0; member < count; ++member) {
          members += module(depth - 1, first);
        }
        result += "<union" + (count > 0 && below(2) == 0 ? " scaffold=\"" + first + "\"" : std::string()) + ">" +
                  members + "</union>";
      } else if (depth > 0) {
        std::string name;
        result += module(depth - 1, name);
      }
      result += text();
    }
    return result;
  }

  // Leaves `first` alone if it has a name already.
  std::string module(int depth, std::string& first) {
    const std::string name = "m" + std::to_string(++names_);
    first = first.empty() ? name : first;
    const std::string outer = path_;
    path_ += (path_.empty() ? "" : "/") + name;
    paths_.push_back(path_);
    std::string source = "<module name=\"" + name + "\">" + items(depth, false) + "</module>";
    path_ = outer;
    return source;
  }

  std::string imports(const Schema& schema, ModuleIndex parent, bool with_text) {
    std::vector<std::string> parts;
    std::vector<int> unions;
    for (const ModuleIndex index : invariants::module_at(schema, parent).children) {
      const Module& child = invariants::module_at(schema, index);
      const bool taken = std::count(unions.begin(), unions.end(), child.union_number) > 0;
      if (below(3) == 0 || (child.union_number != 0 && taken)) {
        continue;
      }
      unions.push_back(child.union_number == 0 ? -1 : child.union_number);
      std::string part = "<" + child.name;
      for (const Parameter& parameter : child.parameters) {
        if (parameter.length > 0 && below(2) == 0) {
          part += " " + parameter.name + "=\"x" + (parameter.length > 1 && below(2) == 0 ? " y" : "") + "\"";
        }
      }
      part += ">" + imports(schema, index, false) + "</" + child.name + ">";
      parts.push_back(part + (with_text && below(4) == 0 ? text() : ""));
    }
    std::shuffle(parts.begin(), parts.end(), random_);
    std::string result = with_text && below(5) == 0 ? text() : "";
    for (const std::string& part : parts) {
      result += part;
    }
    return result;
  }

  std::mt19937 random_;
  int names_ = 0;
  std::string path_;
  std::vector<std::string> paths_;
};

TEST_CASE("random schemas and prompts hold together", "[pml][property]") {
  int compiled = 0;
  int planned = 0;
  int refused = 0;
  for (unsigned seed = 0; seed < 800; ++seed) {
    Generator generator(seed);
    const std::string source = generator.schema();
    const ModelText model = word_model(seed % 2 == 0, 4000);
    const auto schema = compile_schema(source, model);
    INFO(seed);
    INFO(source);
    if (!schema.ok()) {
      const ErrorCode code = schema.error().code;
      REQUIRE((code == ErrorCode::kUnionConflict || code == ErrorCode::kDuplicateName));
      continue;
    }
    ++compiled;
    REQUIRE(invariants::check_schema(**schema) == "");
    REQUIRE(oracle::compare_visibility(**schema) == "");
    for (int i = 0; i < 4; ++i) {
      const std::string prompt = generator.prompt(**schema);
      INFO(prompt);
      ResolveOptions options;
      options.add_generation_prompt = i % 2 == 0;
      const auto plan = resolve_source(*schema, prompt, model, options);
      if (!plan.ok()) {
        const ErrorCode code = plan.error().code;
        REQUIRE((code == ErrorCode::kTextDoesNotFit || code == ErrorCode::kEmptyPrompt));
        ++refused;
        continue;
      }
      ++planned;
      REQUIRE(invariants::check_plan(*plan, options, model.max_positions) == "");
    }
  }
  // The generator must not wander off into what is refused anyway.
  CHECK(compiled > 500);
  CHECK(planned > 1000);
  CHECK(refused > 25);
}

}  // namespace
}  // namespace promptcached::pml
