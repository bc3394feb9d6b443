// Reuse is right: whatever is cached, evicted, batched or preempted, every row sees exactly what the plan says.
#include <random>

#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

const std::vector<std::string> kModes = {"isolated", "rooted", "contextual"};

// Everything PML has: root text, unions, nesting, parameters, a scaffold, a module that is never cached.
std::string rich_schema(const std::string& name, const std::string& mode, int seed) {
  const auto words = EngineFixture::words;
  return "<schema name=\"" + name + "\" attention=\"" + mode + "\">" + words(seed, 5) + "<module name=\"plan\">" +
         words(seed + 1, 9) + " <param name=\"days\" len=\"3\"/> " + words(seed + 2, 40) + "<module name=\"inner\">" +
         words(seed + 3, 12) + "</module>" + words(seed + 4, 6) + "</module>" + words(seed + 5, 4) +
         "<union scaffold=\"b\"><module name=\"a\">" + words(seed + 6, 3) + "</module><module name=\"b\">" +
         words(seed + 7, 17) + "<module name=\"deep\">" + words(seed + 8, 5) + "</module></module><module name=\"c\">" +
         words(seed + 9, 11) + "</module></union>" + words(seed + 10, 7) + "<module name=\"fresh\" cache=\"false\">" +
         words(seed + 11, 8) + "</module>" + "<module name=\"end\">" + words(seed + 12, 10) +
         "</module><scaffold modules=\"a end\"/></schema>";
}

std::vector<std::string> rich_prompts(const std::string& schema) {
  const std::string open = "<prompt schema=\"" + schema + "\">";
  return {open + "w1 w2</prompt>",
          open + "<plan days=\"w3 w4\"><inner/></plan><b><deep/></b><end/>w5 w6 w7</prompt>",
          open + "<plan/>w9</prompt>",
          open + "<plan days=\"w1 w2 w3\"/><c/><fresh/>w8 w8</prompt>",
          open + "<end/><a/>w4 w5</prompt>",
          open + "<end/><plan days=\"w6\"/></prompt>",
          open + "<b/><end/></prompt>",
          open + "<fresh/><plan><inner/></plan></prompt>"};
}

TEST_CASE("hit, miss and bypass give the answer that the plan defines") {
  for (const std::string& mode : kModes) {
    DYNAMIC_SECTION(mode) {
      EngineFixture fixture;
      fixture.add_schema(rich_schema("s", mode, 3));
      for (const std::string& prompt : rich_prompts("s")) {
        INFO(prompt);
        const GenerateRequest hit = fixture.request(prompt);
        const std::vector<TokenId> expected = fixture.expected(hit);
        CHECK(fixture.run(hit).ids() == expected);

        fixture.engine->pool().drop_unpinned();
        const Answer missed = fixture.run(fixture.request(prompt));
        CHECK(missed.ids() == expected);
        CHECK(missed.start->usage.cached_tokens == 0);

        const Answer warm = fixture.run(fixture.request(prompt));
        CHECK(warm.ids() == expected);

        GenerateRequest bypass = fixture.request(prompt);
        bypass.bypass_cache = true;
        const Answer bypassed = fixture.run(std::move(bypass));
        CHECK(bypassed.ids() == expected);
        CHECK(bypassed.start->usage.cached_tokens == 0);
        CHECK(bypassed.start->usage.new_tokens == bypassed.start->usage.prompt_tokens);
      }
    }
  }
}

TEST_CASE("a budget too small for the work still gives every request its answer") {
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 420 * EngineFixture::kTokenBytes;
  options.max_running = 8;
  EngineFixture fixture(options);
  constexpr int kSchemas = 6;
  for (int i = 0; i < kSchemas; ++i) {
    fixture.add_schema(rich_schema("s" + std::to_string(i), kModes[static_cast<std::size_t>(i % 2)], i * 20));
  }
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<std::shared_ptr<TokenStream>, std::vector<TokenId>>> running;
    for (int i = 0; i < 12; ++i) {
      const std::vector<std::string> prompts = rich_prompts("s" + std::to_string(random() % kSchemas));
      GenerateRequest request =
          fixture.request(prompts[random() % prompts.size()], 1 + static_cast<int>(random() % 30));
      request.bypass_cache = random() % 8 == 0;
      std::vector<TokenId> expected = fixture.expected(request);
      running.emplace_back(fixture.submit(std::move(request)), std::move(expected));
    }
    for (auto& [stream, expected] : running) {
      const Answer answer = collect(*stream);
      INFO((answer.error ? answer.error->message : ""));
      CHECK(answer.ids() == expected);
    }
  }
  CHECK(fixture.engine->pool().check_integrity());
}

TEST_CASE("requests that wait with the memory each other needs give way and all end") {
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 200 * EngineFixture::kTokenBytes;
  EngineFixture fixture(options);
  std::string modules;
  for (int i = 0; i < 4; ++i) {
    modules += "<module name=\"m" + std::to_string(i) + "\">" + EngineFixture::words(i, 60) + "</module>";
  }
  fixture.add_schema("<schema name=\"s\">" + modules + "</schema>");
  for (int round = 0; round < 10; ++round) {
    fixture.engine->pool().drop_unpinned();
    const GenerateRequest first = fixture.request("<prompt schema=\"s\"><m0/><m1/>w1 w2</prompt>");
    const GenerateRequest second = fixture.request("<prompt schema=\"s\"><m2/><m3/>w3 w4</prompt>");
    const auto a = fixture.submit(first);
    const auto b = fixture.submit(second);
    CHECK(collect(*a).ids() == fixture.expected(first));
    CHECK(collect(*b).ids() == fixture.expected(second));
  }
}

TEST_CASE("a module is encoded once however many requests wait for it") {
  EngineFixture fixture;
  fixture.add_schema("<schema name=\"s\"><module name=\"m\">" + EngineFixture::words(1, 200) + "</module></schema>");
  fixture.engine->pool().drop_unpinned();
  const double before = fixture.metrics.module_encodes().value();
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 16; ++i) {
    streams.push_back(fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w" + std::to_string(i) + "</prompt>")));
  }
  for (const auto& stream : streams) {
    CHECK(collect(*stream).done.has_value());
  }
  CHECK(fixture.metrics.module_encodes().value() - before == 1);
}

TEST_CASE("requests that share a module hold one copy of it and read it once a step") {
  EngineFixture fixture;
  fixture.add_schema("<schema name=\"s\"><module name=\"m\">" + EngineFixture::words(1, 2000) + "</module></schema>");
  std::size_t most = 0;
  fixture.lm->on_forward = [&](const model::ForwardBatch&) {
    most = std::max(most, fixture.engine->pool().stats().module_bytes);
  };
  const std::int64_t reads_before = fixture.lm->kv_reads;
  const std::int64_t steps_before = fixture.lm->steps;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 64; ++i) {
    streams.push_back(
        fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w" + std::to_string(i) + "</prompt>", 20)));
  }
  for (const auto& stream : streams) {
    CHECK(collect(*stream).done.has_value());
  }
  const std::size_t module = fixture.engine->pool().stats().module_bytes;
  CHECK(most == module);
  // Each step reads the module once, and of the sequences' own KV at most what they have.
  const std::int64_t steps = fixture.lm->steps - steps_before;
  const std::int64_t module_tokens = static_cast<std::int64_t>(module / EngineFixture::kTokenBytes);
  CHECK(fixture.lm->kv_reads - reads_before <= steps * (module_tokens + 16 * 48));
  fixture.lm->on_forward = nullptr;
}

TEST_CASE("KV is shared by content, across schemas, and never by name") {
  EngineFixture fixture;
  const std::string text = EngineFixture::words(5, 50);
  fixture.add_schema("<schema name=\"one\"><module name=\"m\">" + text + "</module></schema>");
  const double before = fixture.metrics.module_encodes().value();
  fixture.add_schema("<schema name=\"two\"><module name=\"other\">" + text + "</module></schema>");
  CHECK(fixture.metrics.module_encodes().value() == before);
  CHECK(fixture.engine->schemas().status("two")->modules[0].shared);

  // The same name with other text: another answer, and the old KV is gone.
  const Answer old = fixture.run(fixture.request("<prompt schema=\"one\"><m/>w1</prompt>"));
  fixture.add_schema("<schema name=\"one\"><module name=\"m\">" + EngineFixture::words(6, 50) + "</module></schema>");
  const GenerateRequest fresh = fixture.request("<prompt schema=\"one\"><m/>w1</prompt>");
  const Answer changed = fixture.run(fresh);
  CHECK(changed.ids() == fixture.expected(fresh));
  CHECK(changed.ids() != old.ids());
}

TEST_CASE("a deleted schema leaves no KV behind, and requests in flight finish on their version") {
  EngineFixture fixture;
  fixture.add_schema(rich_schema("s", "rooted", 1));
  const GenerateRequest request = fixture.request(rich_prompts("s")[1], 60);
  const std::vector<TokenId> expected = fixture.expected(request);
  const auto stream = fixture.submit(request);
  CHECK(fixture.engine->schemas().remove("s").ok());
  CHECK(collect(*stream).ids() == expected);
  CHECK(fixture.engine->drain(std::chrono::seconds(10)));
  CHECK(fixture.engine->pool().stats().module_bytes == 0);
  CHECK(fixture.engine->schemas().find("s").error().code == ErrorCode::kUnknownSchema);
}

TEST_CASE("isolated modules have the same key whatever stands before them, rooted ones do not") {
  const auto key = [](EngineFixture& fixture, const std::string& mode, const std::string& before) {
    fixture.add_schema("<schema name=\"s\" attention=\"" + mode + "\"><module name=\"a\">" + before +
                       "</module><module name=\"b\">w9 w8 w7</module></schema>");
    const auto version = *fixture.engine->schemas().find("s");
    return version
        ->keys[static_cast<std::size_t>(pml::find_module(*version->schema, "b") - version->schema->modules.data())];
  };
  EngineFixture fixture;
  // a is no ancestor of b and no root text, so in both modes b does not see it.
  CHECK(key(fixture, "isolated", "w1 w2 w3 w4") == key(fixture, "isolated", "w5 w6 w7 w8"));
  CHECK(key(fixture, "rooted", "w1 w2 w3 w4") == key(fixture, "rooted", "w5 w6 w7 w8"));
  CHECK_FALSE(key(fixture, "contextual", "w1 w2 w3 w4") == key(fixture, "contextual", "w5 w6 w7 w8"));
  // Other positions: another key.
  CHECK_FALSE(key(fixture, "isolated", "w1 w2 w3") == key(fixture, "isolated", "w1 w2 w3 w4"));
}

}  // namespace
}  // namespace promptcached::engine
