// Warnings about prompts that are not wrong.
#include "core/pml/prompt_lint.h"

#include "tests/unit/pml/support.h"

namespace promptcached::pml {
namespace {

constexpr const char* kTrips =
    "<schema name=\"trips\"><module name=\"long\">a b c d e f g h i j</module>"
    "<union><module name=\"rome\">r1 r2</module><module name=\"oslo\">o1 o2 o3 o4 o5"
    "<union><module name=\"fjord\">f1</module><module name=\"hill\">h1</module></union></module></union></schema>";

std::vector<std::string> lint(const std::string& prompt, std::int32_t block_tokens, bool has_roles = false) {
  const Prompts prompts(kTrips);
  return lint_prompt(prompts.plan("<prompt schema=\"trips\">" + prompt + "</prompt>"), block_tokens, has_roles);
}

TEST_CASE("a union that is not used is named with its members", "[pml]") {
  const auto none = lint("<long/>x", 0);
  REQUIRE(none.size() == 1);
  CHECK(none[0] == "union 1 is not used: none of rome, oslo is imported");
  CHECK(lint("<rome/>x", 0).empty());  // the inner union is no question then
  const auto inner = lint("<oslo/>x", 0);
  REQUIRE(inner.size() == 1);
  CHECK(inner[0] == "union 2 is not used: none of oslo/fjord, oslo/hill is imported");
  CHECK(lint("<oslo><hill/></oslo>x", 0).empty());
}

TEST_CASE("short modules are named with their length", "[pml]") {
  const auto warnings = lint("<long/><rome/>x", 5);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("module 'rome' has 2 tokens") == 0);
}

TEST_CASE("no role tags at all are told for a model that has roles", "[pml]") {
  CHECK(lint("<rome/>x", 0, true).size() == 1);
  CHECK(lint("<rome/><user>x</user>", 0, true).empty());
}

TEST_CASE("the plan's own warnings have their place", "[pml]") {
  const auto warnings = lint("<rome/></user>x", 0);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("line 1, column ") == 0);
}

TEST_CASE("a prompt without modules has nothing to lint", "[pml]") {
  CHECK(lint_prompt(plain_plan({1, 2, 3}), 64, true).empty());
}

}  // namespace
}  // namespace promptcached::pml
