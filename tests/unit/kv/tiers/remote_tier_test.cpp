// The remote tier over a real Redis: records that come back, that are damaged, and a store that goes away.
#include "core/kv/tiers/remote_tier.h"

#include "tests/catch.h"
#include "tests/unit/kv/tier_fixture.h"
#include "tests/unit/kv/tiers/real_servers.h"

namespace promptcached::kv {
namespace {

#ifndef __SANITIZE_THREAD__  // which cannot see how the Rust library's threads wait for each other

std::unique_ptr<RemoteTier> tier_of(const RedisServer& redis, CircuitBreaker::Options breaker = {}) {
  Result<std::unique_ptr<RemoteStore>> store = RemoteStore::open(
      {.uri = "redis://" + redis.address() + "?prefix=test:", .timeout = std::chrono::milliseconds(500)});
  REQUIRE(store.ok());
  return std::make_unique<RemoteTier>(RemoteTier::Options{identity_of(), std::move(breaker)}, std::move(store).value());
}

// The value as Redis has it, by a client of its own.
std::unique_ptr<RemoteStore> client_of(const RedisServer& redis) {
  return std::move(RemoteStore::open({.uri = "redis://" + redis.address() + "?prefix=test:"})).value();
}

std::string name_of(int number) { return "kv1-" + key_of(number).hex(); }

TEST_CASE("what one server stores another one loads", "[kv][remote]") {
  const RedisServer redis;
  const auto writer = tier_of(redis);
  const auto reader = tier_of(redis);
  MemorySource source(1, 50);
  CHECK(writer->store(source) == StoreOutcome::kStored);
  CHECK(writer->has(key_of(1)));
  CHECK_FALSE(reader->has(key_of(1)));
  CHECK(reader->may_have(key_of(1)));
  Target target(source);
  CHECK(reader->load(target.sink) == LoadOutcome::kLoaded);
  CHECK(target.data == source.data());
  CHECK(reader->has(key_of(1)));
  // Fetched ahead, it is loaded from there.
  Target again(source);
  reader->prefetch(key_of(1));
  CHECK(reader->load(again.sink) == LoadOutcome::kLoaded);
  CHECK(again.data == source.data());
  // Removed by one, it is gone for all.
  writer->remove(key_of(1));
  CHECK(reader->load(target.sink) == LoadOutcome::kMissing);
  CHECK_FALSE(reader->has(key_of(1)));
}

TEST_CASE("a value that is cut short, changed, foreign or expired is removed", "[kv][remote]") {
  const RedisServer redis;
  const auto tier = tier_of(redis);
  const auto client = client_of(redis);
  MemorySource source(1, 50);
  const auto spoil = GENERATE(0, 1, 2, 3, 4);
  if (spoil == 4) {
    source.mutable_header().retention.ttl = std::chrono::seconds(1);
    source.mutable_header().last_use -= std::chrono::seconds(10);
  }
  REQUIRE(tier->store(source) == StoreOutcome::kStored);
  const Result<std::optional<RemoteValue>> stored = client->read(name_of(1));
  REQUIRE((stored.ok() && stored->has_value()));
  std::vector<std::byte> bytes((*stored)->bytes().begin(), (*stored)->bytes().end());
  switch (spoil) {
    case 0:
      bytes.resize(bytes.size() - 1);
      break;
    case 1:
      bytes.resize(10);
      break;
    case 2:
      bytes.back() ^= std::byte{1};
      break;
    case 3:
      bytes[20] ^= std::byte{1};  // the model's digest
      break;
    default:
      break;
  }
  REQUIRE(client->write(name_of(1), bytes).ok());
  Target target(source);
  CHECK(tier->load(target.sink) == (spoil == 4 ? LoadOutcome::kMissing : LoadOutcome::kDamaged));
  CHECK_FALSE(client->read(name_of(1)).value().has_value());
  CHECK_FALSE(tier->has(key_of(1)));
}

TEST_CASE("a store that has gone costs nothing, and is used again when it is back", "[kv][remote]") {
  RedisServer redis;
  auto now = std::make_shared<std::chrono::steady_clock::time_point>();
  CircuitBreaker::Options breaker;
  breaker.failures = 2;
  breaker.first_pause = std::chrono::seconds(1);
  breaker.now = [now] { return *now; };
  const auto tier = tier_of(redis, breaker);
  MemorySource source(1, 50);
  REQUIRE(tier->store(source) == StoreOutcome::kStored);
  redis.process().kill();
  Target target(source);
  CHECK(tier->load(target.sink) == LoadOutcome::kFailed);
  CHECK(tier->load(target.sink) == LoadOutcome::kFailed);
  CHECK_FALSE(tier->may_have(key_of(1)));
  const auto began = std::chrono::steady_clock::now();
  CHECK(tier->load(target.sink) == LoadOutcome::kMissing);
  CHECK(tier->store(source) == StoreOutcome::kNoRoom);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(50));
  redis.process().start();
  *now += std::chrono::seconds(2);
  CHECK(tier->may_have(key_of(1)));
  CHECK(tier->load(target.sink) == LoadOutcome::kMissing);  // it came back empty
  CHECK(tier->store(source) == StoreOutcome::kStored);
  CHECK(tier->load(target.sink) == LoadOutcome::kLoaded);
}

#endif

}  // namespace
}  // namespace promptcached::kv
