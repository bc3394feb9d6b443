// What happens to requests: order, limits, faults, cancellation, the end of a server.
#include <thread>

#include "tests/unit/engine/engine_fixture.h"

namespace promptcached::engine {
namespace {

const std::string kSchema =
    "<schema name=\"s\"><module name=\"m\">" + EngineFixture::words(1, 60) + "</module></schema>";

bool wait_until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_CASE("a cancelled request stops within a step and gives everything back") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  const auto stream = fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 5000));
  REQUIRE(stream->next(std::chrono::seconds(20)).has_value());
  stream->cancel();
  const Answer rest = [&] {
    Answer answer;
    while (!stream->finished()) {
      if (auto event = stream->next(std::chrono::seconds(20))) {
        if (auto* done = std::get_if<DoneEvent>(&*event)) {
          answer.done = *done;
        }
      }
    }
    return answer;
  }();
  REQUIRE(rest.done.has_value());
  CHECK(rest.done->finish_reason == FinishReason::kCancelled);
  CHECK(rest.done->usage.completion_tokens < 5000);
  CHECK(wait_until([&] { return fixture.engine->pool().stats().block_bytes == 0; }));
  CHECK(wait_until([&] { return fixture.engine->status().running == 0; }));
}

TEST_CASE("a cancelled request's modules are not encoded for nobody") {
  EngineFixture fixture;
  fixture.add_schema("<schema name=\"s\"><module name=\"m\">" + EngineFixture::words(1, 3000) + "</module></schema>");
  fixture.engine->pool().drop_unpinned();
  std::atomic<bool> slow{true};
  fixture.lm->on_forward = [&](const model::ForwardBatch&) {
    if (slow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  const std::int64_t rows = fixture.lm->rows;
  const auto stream = fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>"));
  REQUIRE(wait_until([&] { return fixture.lm->rows > rows; }));
  stream->cancel();
  slow = false;
  while (!stream->finished()) {
    stream->next(std::chrono::seconds(1));
  }
  CHECK(wait_until([&] { return fixture.engine->pool().stats().module_bytes == 0; }));
  CHECK(fixture.lm->rows - rows < 3000);
}

TEST_CASE("a deadline ends a request with a timeout") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  fixture.lm->on_forward = [](const model::ForwardBatch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  GenerateRequest request = fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 5000);
  request.deadline = Clock::now() + std::chrono::milliseconds(50);
  const Answer answer = fixture.run(std::move(request));
  REQUIRE(answer.error.has_value());
  CHECK(answer.error->code == ErrorCode::kTimeout);
  CHECK(answer.tokens.size() < 5000);
}

TEST_CASE("requests beyond the queue are refused at once") {
  EngineOptions options = EngineFixture::default_options();
  options.max_running = 2;
  options.max_queue = 3;
  EngineFixture fixture(options);
  fixture.add_schema(kSchema);
  fixture.lm->on_forward = [](const model::ForwardBatch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 100)));
  }
  const auto refused = fixture.engine->submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 100));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kQueueFull);
  for (const auto& stream : streams) {
    CHECK(collect(*stream).done.has_value());
  }
  CHECK(fixture.run(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>")).done.has_value());
}

TEST_CASE("a fault of one request touches no other") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  const TokenId bad = (*fixture.engine->text().tokenizer->encode(" w77")).front();
  fixture.lm->on_forward = [bad](const model::ForwardBatch& batch) {
    if (std::find(batch.tokens.begin(), batch.tokens.end(), bad) != batch.tokens.end()) {
      throw std::runtime_error("out of memory");
    }
  };
  std::vector<std::pair<std::shared_ptr<TokenStream>, std::vector<TokenId>>> good;
  std::vector<std::shared_ptr<TokenStream>> faulty;
  for (int i = 0; i < 6; ++i) {
    GenerateRequest request = fixture.request("<prompt schema=\"s\"><m/>w1 w" + std::to_string(i) + "</prompt>", 2);
    std::vector<TokenId> expected = fixture.expected(request);
    REQUIRE(std::find(expected.begin(), expected.end(), bad) == expected.end());
    good.emplace_back(fixture.submit(std::move(request)), std::move(expected));
    faulty.push_back(fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w2 w77</prompt>", 2)));
  }
  for (auto& [stream, expected] : good) {
    CHECK(collect(*stream).ids() == expected);
  }
  for (const auto& stream : faulty) {
    const Answer answer = collect(*stream);
    REQUIRE(answer.error.has_value());
    CHECK(answer.error->code == ErrorCode::kInternal);
  }
}

TEST_CASE("a module that cannot be encoded fails who asks for it, and registration, alone") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  const TokenId bad = (*fixture.engine->text().tokenizer->encode("w77")).front();
  fixture.lm->on_forward = [bad](const model::ForwardBatch& batch) {
    if (std::find(batch.tokens.begin(), batch.tokens.end(), bad) != batch.tokens.end()) {
      throw std::runtime_error("out of memory");
    }
  };
  const auto good = fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 100));
  const auto outcome =
      fixture.engine->schemas().register_schema("<schema name=\"t\"><module name=\"x\">w77</module></schema>", {});
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.error().code == ErrorCode::kInternal);
  CHECK(fixture.engine->schemas().find("t").error().code == ErrorCode::kUnknownSchema);
  CHECK(collect(*good).done.has_value());
}

TEST_CASE("what can never fit the budget is refused with the numbers") {
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 200 * EngineFixture::kTokenBytes;
  EngineFixture fixture(options);
  const auto outcome = fixture.engine->schemas().register_schema(
      "<schema name=\"big\"><module name=\"m\">" + EngineFixture::words(1, 300) + "</module></schema>", {});
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.error().code == ErrorCode::kTooLargeForCache);

  fixture.add_schema(kSchema);
  const auto refused = fixture.engine->submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 500));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::kTooLargeForCache);
  CHECK(fixture.run(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>")).done.has_value());
}

TEST_CASE("drain lets open requests finish and refuses new ones") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  const auto stream = fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 200));
  std::thread drainer([&] { CHECK(fixture.engine->drain(std::chrono::seconds(20))); });
  REQUIRE(wait_until([&] { return fixture.engine->status().draining; }));
  CHECK(fixture.engine->submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>")).error().code ==
        ErrorCode::kDraining);
  CHECK(fixture.engine->schemas().register_schema("<schema name=\"x\">w1</schema>", {}).error().code ==
        ErrorCode::kDraining);
  CHECK(collect(*stream).tokens.size() == 200);
  drainer.join();
}

TEST_CASE("drain ends what outlasts the grace with an error") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  fixture.lm->on_forward = [](const model::ForwardBatch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  const auto stream = fixture.submit(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 10000));
  CHECK_FALSE(fixture.engine->drain(std::chrono::milliseconds(50)));
  const Answer answer = collect(*stream);
  REQUIRE(answer.error.has_value());
  CHECK(answer.error->code == ErrorCode::kDraining);
}

TEST_CASE("look-ups and hits are counted once per request and module") {
  EngineFixture fixture;
  fixture.add_schema(kSchema);
  for (int i = 0; i < 5; ++i) {
    fixture.run(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>"));
  }
  CHECK(fixture.metrics.module_lookups().value() == 5);
  CHECK(fixture.metrics.module_hits(TierLabel::kDevice).value() == 5);
  fixture.engine->pool().drop_unpinned();
  fixture.run(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>"));
  CHECK(fixture.metrics.module_lookups().value() == 6);
  CHECK(fixture.metrics.module_hits(TierLabel::kDevice).value() == 5);
  CHECK(fixture.metrics.prompt_tokens(SourceLabel::kDevice).value() == 5 * 60);
  CHECK(fixture.metrics.generated_tokens().value() == 6 * 8);
}

TEST_CASE("end tokens, lengths and stop strings end a stream as the API says") {
  EngineFixture probe;
  probe.add_schema(kSchema);
  const GenerateRequest request = probe.request("<prompt schema=\"s\"><m/>w1</prompt>", 12);
  const std::vector<TokenId> free_run = probe.expected(request);
  const Answer by_length = probe.run(request);
  CHECK(by_length.done->finish_reason == FinishReason::kLength);
  CHECK(by_length.done->usage.completion_tokens == 12);

  SECTION("an end token has no event") {
    const auto first = std::find(free_run.begin(), free_run.end(), free_run[5]) - free_run.begin();
    EngineFixture fixture(EngineFixture::default_options(), {free_run[5]});
    fixture.add_schema(kSchema);
    const Answer answer = fixture.run(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 12));
    CHECK(answer.done->finish_reason == FinishReason::kStop);
    CHECK(static_cast<std::ptrdiff_t>(answer.tokens.size()) == first);
    GenerateRequest on = fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 12);
    on.ignore_eos = true;
    CHECK(fixture.run(std::move(on)).tokens.size() == 12);
  }
  SECTION("every end token of several ends a stream") {
    const TokenId first_met = free_run[3];
    REQUIRE(std::count(free_run.begin(), free_run.begin() + 3, first_met) == 0);
    const TokenId unmet = 0;
    REQUIRE(std::count(free_run.begin(), free_run.end(), unmet) == 0);
    for (const std::vector<TokenId>& end_tokens :
         {std::vector<TokenId>{unmet, first_met}, {first_met, unmet}, {unmet, free_run[5], first_met}}) {
      EngineFixture fixture(EngineFixture::default_options(), end_tokens);
      fixture.add_schema(kSchema);
      const Answer answer = fixture.run(fixture.request("<prompt schema=\"s\"><m/>w1</prompt>", 12));
      CHECK(answer.done->finish_reason == FinishReason::kStop);
      CHECK(answer.ids() == std::vector<TokenId>(free_run.begin(), free_run.begin() + 3));
      CHECK(answer.done->usage.completion_tokens == 3);
    }
  }
  SECTION("a stop string is never shown") {
    const std::string text = by_length.text();
    REQUIRE(text.size() > 8);
    GenerateRequest stopping = probe.request("<prompt schema=\"s\"><m/>w1</prompt>", 12);
    stopping.stop = {text.substr(text.size() / 2, 4)};
    const std::string expected = text.substr(0, text.find(stopping.stop[0]));
    const Answer answer = probe.run(std::move(stopping));
    CHECK(answer.done->finish_reason == FinishReason::kStop);
    CHECK(answer.text() == expected);
    CHECK(answer.done->usage.completion_tokens == static_cast<std::int32_t>(answer.tokens.size()));
  }
  SECTION("a stop string that never completes is shown at the end") {
    const std::string text = by_length.text();
    GenerateRequest stopping = probe.request("<prompt schema=\"s\"><m/>w1</prompt>", 12);
    stopping.stop = {text.substr(text.size() - 3) + "never"};
    const Answer answer = probe.run(std::move(stopping));
    CHECK(answer.done->finish_reason == FinishReason::kLength);
    CHECK(answer.text() == text);
    CHECK(answer.tokens.size() == 12);
  }
}

TEST_CASE("a schema can be registered without waiting, and used meanwhile") {
  EngineFixture fixture;
  RegisterOptions options;
  options.wait = false;
  const auto outcome = fixture.engine->schemas().register_schema(kSchema, options);
  REQUIRE(outcome.ok());
  CHECK(outcome->created);
  const GenerateRequest request = fixture.request("<prompt schema=\"s\"><m/>w1</prompt>");
  CHECK(fixture.run(request).ids() == fixture.expected(request));
  CHECK(wait_until([&] { return fixture.engine->schemas().status("s")->state == SchemaState::kReady; }));
  CHECK(fixture.engine->schemas().register_schema(kSchema, {})->unchanged);
  RegisterOptions only_new;
  only_new.only_if_new = true;
  CHECK(fixture.engine->schemas().register_schema(kSchema, only_new).error().code == ErrorCode::kPreconditionFailed);
}

TEST_CASE("modules of a schema deleted during its registration are not encoded for nobody") {
  EngineFixture fixture;
  std::atomic<bool> slow{true};
  fixture.lm->on_forward = [&](const model::ForwardBatch&) {
    if (slow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  std::string modules;
  for (int i = 0; i < 10; ++i) {
    modules += "<module name=\"m" + std::to_string(i) + "\">" + EngineFixture::words(i, 300) + "</module>";
  }
  std::optional<Error> refusal;
  std::thread registrant([&] {
    const auto outcome = fixture.engine->schemas().register_schema("<schema name=\"s\">" + modules + "</schema>", {});
    refusal = outcome.ok() ? std::nullopt : std::optional(outcome.error());
  });
  const bool started = wait_until([&] { return fixture.lm->rows > 0; });
  const Status removed = fixture.engine->schemas().remove("s");
  slow = false;
  registrant.join();
  REQUIRE(started);
  CHECK(removed.ok());
  REQUIRE(refusal.has_value());
  CHECK(refusal->code == ErrorCode::kConflict);
  CHECK(fixture.lm->rows < 3000);
  CHECK(wait_until([&] { return fixture.engine->pool().stats().module_bytes == 0; }));
}

// Two members of a union with the same text are one entry of the cache under two indices.
TEST_CASE("requests for twin modules wait together for one encoding") {
  EngineFixture fixture;
  const std::string text = EngineFixture::words(3, 40);
  fixture.add_schema("<schema name=\"twins\" attention=\"isolated\">w1<union><module name=\"a\">" + text +
                     "</module><module name=\"b\">" + text + "</module></union></schema>");
  for (int round = 0; round < 5; ++round) {
    fixture.engine->pool().drop_unpinned();
    GenerateRequest first = fixture.request("<prompt schema=\"twins\"><a/>w2</prompt>");
    GenerateRequest second = fixture.request("<prompt schema=\"twins\"><b/>w2</prompt>");
    const auto one = fixture.submit(first);
    const auto other = fixture.submit(second);
    CHECK(collect(*one).ids() == fixture.expected(first));
    CHECK(collect(*other).ids() == fixture.expected(second));
  }
}

TEST_CASE("a pinned schema outlives pressure, and a patch unpins it") {
  EngineOptions options = EngineFixture::default_options();
  options.kv_device_bytes = 200 * EngineFixture::kTokenBytes;
  options.kv_eviction = kv::EvictionKind::kLru;  // the other one goes by time that was measured
  EngineFixture fixture(options);
  RegisterOptions pinned;
  pinned.pin = true;
  REQUIRE(fixture.engine->schemas().register_schema(kSchema, pinned).ok());
  for (int i = 2; i < 6; ++i) {
    fixture.add_schema("<schema name=\"t" + std::to_string(i) + "\"><module name=\"m\">" +
                       EngineFixture::words(i, 100) + "</module></schema>");
  }
  CHECK(fixture.engine->schemas().status("s")->modules[0].tier == "device");
  RetentionPatch unpin;
  unpin.pin = false;
  REQUIRE(fixture.engine->schemas().patch("s", unpin, {}).ok());
  for (int i = 2; i < 4; ++i) {
    fixture.run(fixture.request("<prompt schema=\"t" + std::to_string(i) + "\"><m/>w1</prompt>"));
  }
  CHECK(fixture.engine->schemas().status("s")->modules[0].tier == "none");
  CHECK(fixture.engine->schemas().patch("s", {}, {{"nothing", unpin}}).error().code == ErrorCode::kUnknownModule);
}

}  // namespace
}  // namespace promptcached::engine
