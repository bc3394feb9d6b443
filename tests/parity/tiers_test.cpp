// What a stay below the device does to a module: nothing in the raw form, and little in the others. The figures are
// those of docs/operations.md.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/kernels/rows.h"
#include "tests/divergence.h"
#include "tests/parity/parity_fixture.h"
#include "tests/temporary_directory.h"

namespace promptcached::parity {
namespace {

using Form = kv::KvCodec::Form;
using Compression = kv::KvCodec::Compression;

constexpr std::int32_t kAnswerTokens = 32;

const char* const kSchema = R"(<schema name="lighthouse">
<module name="history">The lighthouse at Cape Morrow was built in 1871 of grey granite, by masons from three villages. Its first
keeper, Ansel Brook, kept a diary in green ink for thirty-one years. In the winter of 1888 the lamp failed for nine nights, and
the schooner Halcyon was lost on the bar with a cargo of oranges. The village hall still has the ship's bell.</module>
<module name="today">Today the light is automatic. The tower is open on Saturdays from May to September; a ticket costs four
pounds, and children pay half. The path from the harbour takes forty minutes and is closed when the wind is above force
eight. The museum in the old engine house shows the diary, a model of the Halcyon and the first lens.</module>
</schema>)";

const std::vector<std::string> kQuestions = {
    "Who was the first keeper, and what did he write with?",
    "What happened in the winter of 1888?",
    "When can I visit the tower, and what does it cost for two adults and a child?",
    "Describe the way to the lighthouse.",
    "Write a short poem about the Halcyon.",
    "What is in the museum?",
    "List three facts about the lighthouse.",
    "Is the light still lit by hand?",
};

struct Loss {
  double divergence = 0;  // mean over tokens of KL(device || after the stay), in nats
  double agreement = 0;   // share of tokens that are the same, as long as those before them are
  double max_error = 0;   // of K and V
  double mean_error = 0;
};

std::string prompt(const std::string& question) {
  return "<prompt schema=\"lighthouse\"><history/><today/><user>" + question + "</user></prompt>";
}

std::vector<float> kv_of(ParityFixture& fixture, const kv::ModuleKey& key) {
  const std::optional<kv::ModulePin> pin = fixture.engine().pool().hold(key);
  REQUIRE(pin.has_value());
  const kv::KvGeometry& geometry = fixture.engine().pool().geometry();
  std::vector<float> numbers(geometry.bytes(pin->kv().total_tokens()) / geometry.element_bytes());
  kernels::load_as(geometry.format, pin->kv().data, static_cast<std::int64_t>(numbers.size()), numbers.data());
  return numbers;
}

Loss loss_of(const std::string& kv_dtype, const kv::KvCodec& codec) {
  const TemporaryDirectory directory;
  ParityFixture::Options options;
  options.weights = "int8";
  options.kv_dtype = kv_dtype;
  options.tiers.disk_path = directory.path();
  options.tiers.codec = codec;
  ParityFixture fixture(options);
  fixture.add_schema(kSchema);
  REQUIRE(fixture.engine().tiers().flush(std::chrono::seconds(60)));
  std::vector<Outcome> before;
  for (const std::string& question : kQuestions) {
    before.push_back(fixture.run(fixture.request(prompt(question), kAnswerTokens)));
  }
  const kv::ModuleKey key = fixture.engine().schemas().find("lighthouse").value()->keys[1];
  const std::vector<float> exact = kv_of(fixture, key);
  fixture.engine().pool().drop_unpinned();

  Loss loss;
  double tokens = 0;
  for (std::size_t i = 0; i < kQuestions.size(); ++i) {
    const Outcome after = fixture.run(fixture.request(prompt(kQuestions[i]), kAnswerTokens));
    CHECK(after.cache.front().source == (i == 0 ? SourceLabel::kDisk : SourceLabel::kDevice));
    for (std::size_t token = 0; token < after.tokens.size(); ++token) {
      ++tokens;
      loss.divergence += divergence(before[i].logits[token], after.logits[token]);
      if (before[i].tokens[token] != after.tokens[token]) {
        break;  // from here on the two have different texts before them
      }
      ++loss.agreement;
    }
  }
  loss.divergence /= tokens;
  loss.agreement /= tokens;
  const std::vector<float> restored = kv_of(fixture, key);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(static_cast<double>(exact[i]) - restored[i]);
    loss.max_error = std::max(loss.max_error, error);
    loss.mean_error += error / static_cast<double>(exact.size());
  }
  return loss;
}

TEST_CASE("a stay below the device, by codec", "[parity][tiers]") {
  if (ParityFixture::skipped() || ParityFixture::computes_on_gpu()) {
    return;
  }
  struct Case {
    std::string dtype;
    kv::KvCodec codec;
    double most_divergence;
  };
  const std::vector<Case> cases = {
      {"fp16", {Form::kRaw, Compression::kNone}, 0},      {"fp16", {Form::kRaw, Compression::kZstd}, 0},
      {"fp16", {Form::kBf16, Compression::kNone}, 0.004}, {"fp16", {Form::kInt8, Compression::kNone}, 0.004},
      {"fp32", {Form::kFp16, Compression::kLz4}, 0.0001},
  };
  for (const Case& one : cases) {
    const Loss loss = loss_of(one.dtype, one.codec);
    WARN(one.dtype << " KV as " << to_string(one.codec.form) << ", " << to_string(one.codec.compression) << ": KL "
                   << loss.divergence << ", same greedy tokens " << 100 * loss.agreement << " %, KV error "
                   << loss.max_error << " at most, " << loss.mean_error << " on average");
    CHECK(loss.divergence <= one.most_divergence);
    CHECK(loss.agreement >= (one.most_divergence == 0 ? 1 : 0.97));
    CHECK((loss.max_error == 0) == one.codec.lossless());
  }
}

}  // namespace
}  // namespace promptcached::parity
