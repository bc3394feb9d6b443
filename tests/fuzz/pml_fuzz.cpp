// Fuzz target for PML: a schema, and after a line "====" a prompt for it. Nothing may crash, the XML library must read
// whatever the scanner lets through, and what is accepted must hold together (tests/unit/pml/invariants.h).
//
// Build with -DPROMPTCACHED_FUZZ=ON and clang, then: build/fuzz_pml -dict=tests/fuzz/pml.dict CORPUS tests/fuzz/corpus
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/utf8.h"
#include "core/pml/assembly_plan.h"
#include "core/pml/schema.h"
#include "tests/fakes/word_tokenizer.h"
#include "tests/unit/pml/encoding_oracle.h"
#include "tests/unit/pml/invariants.h"

namespace {

namespace pml = promptcached::pml;

void require(const std::string& problem) {
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    std::abort();
  }
}

// An error is an answer to a client: never an internal one, and always text that JSON can carry.
void check_error(const promptcached::Error& error) {
  require(error.code == promptcached::ErrorCode::kInternal ? "internal error: " + error.message : "");
  require(promptcached::is_valid_utf8(error.message) ? "" : "an error message is not UTF-8");
  const bool has_place = error.location && error.location->line > 0 && error.location->column > 0;
  require(!error.location || has_place ? "" : "an error without a proper place: " + error.message);
}

pml::ModelText make_model() {
  pml::ModelText model;
  model.tokenizer = std::make_shared<promptcached::fakes::WordTokenizer>();
  model.roles.system = {"<|im_start|>system\n", "<|im_end|>\n"};
  model.roles.user = {"<|im_start|>user\n", "<|im_end|>\n"};
  model.roles.assistant = {"", "</s>"};
  model.roles.generation_prompt = "<|im_start|>assistant\n";
  model.max_positions = 5000;
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kSeparator = "\n====\n";
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = input.find(kSeparator);
  const std::string_view schema_source = input.substr(0, split);
  const std::string_view prompt_source =
      split == std::string_view::npos ? schema_source : input.substr(split + kSeparator.size());

  const pml::ModelText model = make_model();  // fresh: the words of one input must not pile up
  const auto prompt = pml::parse_prompt(prompt_source);
  if (!prompt.ok()) {
    check_error(prompt.error());
  }
  const auto schema = pml::compile_schema(schema_source, model);
  if (!schema.ok()) {
    check_error(schema.error());
    return 0;
  }
  require(pml::invariants::check_schema(**schema));
  if ((*schema)->positions < 200 && (*schema)->modules.size() < 50) {  // the oracle is slow
    require(pml::oracle::compare_visibility(**schema));
  }
  if (!prompt.ok()) {
    return 0;
  }
  pml::ResolveOptions options;
  options.max_tokens = 16;
  options.add_generation_prompt = size % 2 == 0;
  const auto plan = pml::resolve(*schema, **prompt, model, options);
  if (!plan.ok()) {
    check_error(plan.error());
    return 0;
  }
  require(pml::invariants::check_plan(*plan, options, model.max_positions));
  return 0;
}
