// Sequences' own KV is kept for those that begin alike, and an answer never tells.
#include <random>

#include "tests/temporary_directory.h"
#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

using Tokens = std::vector<TokenId>;

EngineOptions with_blocks_of(std::int32_t tokens) {
  EngineOptions options = EngineFixture::default_options();
  options.block_tokens = tokens;
  return options;
}

Tokens joined(std::initializer_list<Tokens> parts) {
  Tokens all;
  for (const Tokens& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// The answer must be right, and of the prompt so many tokens must have been found; all else is computed.
Answer check_found(EngineFixture& fixture, const GenerateRequest& request, std::int32_t found) {
  const std::int64_t rows = fixture.lm->rows;
  Answer answer = fixture.run(request);
  REQUIRE(answer.done.has_value());
  CHECK(answer.ids() == fixture.expected(request));
  const std::int32_t of_modules = request.plan.cached_tokens();
  CHECK(answer.done->usage.cached_tokens == of_modules + found);
  CHECK(answer.done->usage.new_tokens == std::ssize(request.plan.new_tokens) - found);
  // The token that is sampled last is not computed.
  CHECK(fixture.lm->rows - rows == answer.done->usage.new_tokens + request.max_tokens - 1);
  const bool is_told = !answer.start->cache.empty() && answer.start->cache.back().module == "#prefix";
  CHECK(is_told == (found > 0));
  CHECK((!is_told || answer.start->cache.back().tokens == found));
  return answer;
}

TEST_CASE("the second turn of a conversation computes the new turn alone", "[engine]") {
  EngineFixture fixture(with_blocks_of(16));
  Tokens conversation = EngineFixture::tokens(1, 40);
  std::int32_t stored = 0;
  for (int turn = 2; turn < 8; ++turn) {
    const Answer answer = check_found(fixture, EngineFixture::request(conversation, 10), stored);
    conversation = joined({conversation, answer.ids()});
    stored = static_cast<std::int32_t>(conversation.size()) - 1;
    if (stored % 16 < 8) {
      stored -= stored % 16;  // too few to be kept
    }
    conversation = joined({conversation, EngineFixture::tokens(turn, 7)});
  }
  // What a turn left in its last block has gone into the block that the next one filled.
  const kv::PoolStats stats = fixture.engine->pool().stats();
  CHECK(stats.prefix_entries == (stored + 15) / 16);
  CHECK(stats.prefix_bytes == static_cast<std::size_t>(stats.prefix_entries) * 16 * EngineFixture::kTokenBytes);
  CHECK(stats.pinned_bytes == 0);
  CHECK(stats.entries == 0);
  CHECK(fixture.metrics.module_lookups().value() == 0);
  CHECK(fixture.metrics.prefix_hit_tokens().value() == fixture.metrics.prompt_tokens(SourceLabel::kDevice).value());
  CHECK(fixture.metrics.prefix_lookup_tokens().value() > fixture.metrics.prefix_hit_tokens().value());
}

TEST_CASE("text behind modules is found with the same modules in the same places only", "[engine]") {
  EngineFixture fixture;
  const std::string module = "<module name=\"m\">" + EngineFixture::words(1, 30) + "</module>";
  const std::string other = "<module name=\"m\">" + EngineFixture::words(2, 30) + "</module>";
  fixture.add_schema("<schema name=\"one\">" + module + "</schema>");
  fixture.add_schema("<schema name=\"same\">" + module + "</schema>");
  fixture.add_schema("<schema name=\"other\">" + other + "</schema>");
  fixture.add_schema("<schema name=\"later\"><module name=\"before\">w1 w2</module>" + module + "</schema>");
  const auto prompt = [&](const std::string& schema, const std::string& more = "") {
    return fixture.request("<prompt schema=\"" + schema + "\"><m/>" + EngineFixture::words(5, 24) + more + "</prompt>");
  };
  check_found(fixture, prompt("one"), 0);
  check_found(fixture, prompt("other"), 0);
  check_found(fixture, prompt("later"), 0);
  check_found(fixture, prompt("same"), (static_cast<std::int32_t>(prompt("same").plan.new_tokens.size()) - 1) / 8 * 8);
  check_found(fixture, prompt("one", " and more"), 24);
}

TEST_CASE("the same tokens at other positions are others", "[engine]") {
  EngineFixture fixture;
  const auto request = [](std::int32_t shift) {
    GenerateRequest made = EngineFixture::request(EngineFixture::tokens(1, 20));
    for (pml::NewToken& token : made.plan.new_tokens) {
      token.position += token.position >= 8 ? shift : 0;
    }
    made.plan.next_position += shift;
    return made;
  };
  check_found(fixture, request(0), 0);
  check_found(fixture, request(3), 8);
  check_found(fixture, request(3), 16);
}

TEST_CASE("of a block that begins alike the beginning is copied", "[engine]") {
  EngineFixture fixture(with_blocks_of(32));
  const Tokens first = EngineFixture::tokens(1, 80);
  check_found(fixture, EngineFixture::request(first), 0);
  for (const int common : {7, 8, 31, 32, 39, 40, 63}) {
    const Tokens head(first.begin(), first.begin() + common);
    const std::int32_t found = common % 32 < 8 ? common - common % 32 : common;
    check_found(fixture, EngineFixture::request(joined({head, {500, static_cast<TokenId>(common)}})), found);
  }
}

TEST_CASE("the last token of a prompt is always computed", "[engine]") {
  EngineFixture fixture(with_blocks_of(32));
  for (const int count : {1, 9, 32, 33, 64}) {
    const Tokens tokens = EngineFixture::tokens(count, count);
    check_found(fixture, EngineFixture::request(tokens), 0);
    const std::int32_t found = count - 1;
    check_found(fixture, EngineFixture::request(tokens), found % 32 < 8 ? found - found % 32 : found);
  }
}

TEST_CASE("a request that bypasses the cache neither finds nor leaves anything", "[engine]") {
  EngineFixture fixture;
  GenerateRequest bypass = EngineFixture::request(EngineFixture::tokens(1, 40));
  bypass.bypass_cache = true;
  check_found(fixture, bypass, 0);
  CHECK(fixture.engine->pool().stats().prefix_bytes == 0);
  check_found(fixture, EngineFixture::request(EngineFixture::tokens(1, 40)), 0);
  check_found(fixture, bypass, 0);
  CHECK(fixture.metrics.prefix_lookup_tokens().value() == 39);
}

TEST_CASE("scopes share nothing", "[engine]") {
  EngineFixture fixture;
  GenerateRequest scoped = EngineFixture::request(EngineFixture::tokens(1, 40));
  check_found(fixture, scoped, 0);
  scoped.cache_scope = "tenant";
  check_found(fixture, scoped, 0);
  check_found(fixture, scoped, 32);
}

TEST_CASE("without the option nothing is kept", "[engine]") {
  EngineOptions options = EngineFixture::default_options();
  options.prefix_cache = false;
  EngineFixture fixture(options);
  for (int i = 0; i < 2; ++i) {
    check_found(fixture, EngineFixture::request(EngineFixture::tokens(1, 40)), 0);
  }
  CHECK(fixture.engine->pool().stats().free_bytes == fixture.engine->pool().stats().capacity_bytes);
}

TEST_CASE("what a request has computed is found while it still runs", "[engine]") {
  EngineFixture fixture;
  const Tokens tokens = EngineFixture::tokens(1, 40);
  const auto running = fixture.submit(EngineFixture::request(tokens, 5000));
  REQUIRE(running->next(std::chrono::seconds(20)).has_value());
  const Answer answer = fixture.run(EngineFixture::request(tokens));
  CHECK(answer.ids() == fixture.expected(EngineFixture::request(tokens)));
  CHECK(answer.done->usage.cached_tokens == 32);
  running->cancel();
}

TEST_CASE("what a cancelled request has computed is found", "[engine]") {
  EngineFixture fixture;
  const Tokens tokens = EngineFixture::tokens(1, 40);
  const auto cancelled = fixture.submit(EngineFixture::request(tokens, 5000));
  REQUIRE(cancelled->next(std::chrono::seconds(20)).has_value());
  cancelled->cancel();
  while (!cancelled->finished()) {
    cancelled->next(std::chrono::seconds(20));
  }
  check_found(fixture, EngineFixture::request(tokens), 32);
}

TEST_CASE("under pressure the end of a conversation goes before its beginning", "[engine]") {
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 200 * EngineFixture::kTokenBytes;
  EngineFixture fixture(options);
  const Tokens tokens = EngineFixture::tokens(1, 100);
  fixture.run(EngineFixture::request(tokens));
  fixture.run(EngineFixture::request(EngineFixture::tokens(2, 120)));
  const Answer answer = fixture.run(EngineFixture::request(tokens));
  CHECK(answer.ids() == fixture.expected(EngineFixture::request(tokens)));
  CHECK(answer.done->usage.cached_tokens > 0);
  CHECK(answer.done->usage.cached_tokens < 96);
}

// Whatever the device has no room for goes down.
void fill_device(EngineFixture& fixture) {
  const auto capacity = fixture.engine->pool().stats().capacity_bytes / EngineFixture::kTokenBytes;
  for (int seed = 100; seed < 102; ++seed) {
    fixture.run(EngineFixture::request(EngineFixture::tokens(seed, static_cast<int>(capacity) - 40)));
  }
  REQUIRE(fixture.engine->tiers().flush(std::chrono::seconds(20)));
}

TEST_CASE("what has left the device is found below it", "[engine]") {
  TemporaryDirectory directory;
  const bool on_disk = GENERATE(false, true);
  EngineOptions options = with_blocks_of(16);
  options.kv_device_bytes = 400 * EngineFixture::kTokenBytes;
  options.tiers.host_bytes = on_disk ? 0 : 4000 * EngineFixture::kTokenBytes;
  options.tiers.disk_path = on_disk ? directory.path() : "";
  EngineFixture fixture(options);
  const Tokens tokens = EngineFixture::tokens(1, 108);
  check_found(fixture, EngineFixture::request(tokens), 0);
  fill_device(fixture);
  const Tokens other = EngineFixture::tokens(2, 5);
  Tokens longer = joined({tokens, other});
  const TierLabel below = on_disk ? TierLabel::kDisk : TierLabel::kHost;
  CHECK(fixture.engine->tiers().tier(below)->stats().prefix_entries > 7);
  CHECK(fixture.engine->tiers().tier(below)->stats().entries == 0);
  CHECK(fixture.engine->tiers().tier(below)->list().empty());
  // Six whole blocks, and of the seventh, which holds the answer too, twelve tokens.
  const Answer answer = check_found(fixture, EngineFixture::request(longer), 108);
  CHECK(answer.start->cache.back().source == source_label(below));
  CHECK(fixture.metrics.prompt_tokens(source_label(below)).value() == 108);
  CHECK(check_found(fixture, EngineFixture::request(longer), 112).start->cache.back().source == SourceLabel::kDevice);
}

TEST_CASE("requests that begin alike wait together for what is below the device", "[engine]") {
  EngineOptions options = with_blocks_of(16);
  options.kv_device_bytes = 1000 * EngineFixture::kTokenBytes;
  options.tiers.host_bytes = 4000 * EngineFixture::kTokenBytes;
  EngineFixture fixture(options);
  const Tokens tokens = EngineFixture::tokens(1, 108);
  fixture.run(EngineFixture::request(tokens));
  fill_device(fixture);
  std::vector<std::pair<GenerateRequest, std::shared_ptr<TokenStream>>> asked;
  for (int i = 0; i < 6; ++i) {
    GenerateRequest request = EngineFixture::request(joined({tokens, EngineFixture::tokens(i, 5)}));
    asked.emplace_back(request, fixture.submit(request));
  }
  for (auto& [request, stream] : asked) {
    const Answer answer = collect(*stream);
    CHECK(answer.ids() == fixture.expected(request));
    CHECK(answer.done->usage.cached_tokens == 108);
    CHECK(answer.start->cache.back().source <= SourceLabel::kHost);
  }
}

TEST_CASE("a later process finds on disk what has gone there", "[engine]") {
  TemporaryDirectory directory;
  EngineOptions options = with_blocks_of(16);
  options.kv_device_bytes = 400 * EngineFixture::kTokenBytes;
  options.tiers.disk_path = directory.path();
  const Tokens tokens = EngineFixture::tokens(1, 100);
  {
    EngineFixture first(options);
    first.run(EngineFixture::request(tokens));
    fill_device(first);
  }
  EngineFixture second(options);
  const Answer answer = check_found(second, EngineFixture::request(tokens), 96);
  CHECK(answer.start->cache.back().source == SourceLabel::kDisk);
}

TEST_CASE("conversations that crowd the memory all get their answers", "[engine]") {
  const std::int32_t block = GENERATE(8, 32);
  EngineOptions options = with_blocks_of(block);
  options.kv_device_bytes = 700 * EngineFixture::kTokenBytes;
  options.tiers.host_bytes = GENERATE(0, 300) * EngineFixture::kTokenBytes;
  options.max_running = 6;
  EngineFixture fixture(options);
  fixture.add_schema("<schema name=\"s\"><module name=\"m\">" + EngineFixture::words(1, 30) + "</module></schema>");
  std::mt19937 random(5);
  std::vector<Tokens> conversations;
  for (int i = 0; i < 12; ++i) {
    conversations.push_back(joined({EngineFixture::tokens(i % 3, 30), EngineFixture::tokens(i, 10)}));
  }
  for (int round = 0; round < 12; ++round) {
    std::vector<std::pair<GenerateRequest, std::shared_ptr<TokenStream>>> asked;
    for (const Tokens& conversation : conversations) {
      GenerateRequest request = EngineFixture::request(conversation, 1 + static_cast<int>(random() % 40));
      asked.emplace_back(request, fixture.submit(request));
      if (random() % 4 == 0) {
        const std::string text = EngineFixture::words(static_cast<int>(random() % 3), 40);
        GenerateRequest with_module = fixture.request("<prompt schema=\"s\"><m/>" + text + "</prompt>");
        asked.emplace_back(with_module, fixture.submit(with_module));
      }
    }
    std::size_t which = 0;
    for (auto& [request, stream] : asked) {
      const Answer answer = collect(*stream);
      INFO((answer.error ? answer.error->message : ""));
      REQUIRE(answer.ids() == fixture.expected(request));
      if (request.plan.cached.empty()) {
        Tokens& conversation = conversations[which++];
        conversation = joined({conversation, answer.ids(), EngineFixture::tokens(round, 3)});
        if (conversation.size() > 150) {
          conversation.resize(35);
        }
      }
    }
  }
  CHECK(fixture.metrics.prefix_hit_tokens().value() > 0);
  CHECK(fixture.engine->pool().check_integrity());
}

}  // namespace
}  // namespace promptcached::engine
