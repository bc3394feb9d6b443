#include "core/kv/tier_mover.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>

#include "core/kv/tiers/disk_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "tests/catch.h"
#include "tests/unit/kv/faulty_tier.h"
#include "tests/unit/kv/tier_fixture.h"

namespace promptcached::kv {
namespace {

constexpr std::size_t kModule = 50 * kTokenBytes;

// Room for two modules of 50 tokens on the device, for `host` in the host tier and any number on disk.
struct MoverFixture {
  explicit MoverFixture(std::size_t host, bool with_disk = true) {
    TierMover::Options options;
    if (host > 0) {
      HostTier::Options host_options;
      host_options.capacity_bytes = host * kModule;
      host_options.on_evict = [this](RecordSource& record) { mover->take_from_host(record); };
      options.tiers.push_back(std::make_unique<HostTier>(host_options, make_host_allocator()));
    }
    if (with_disk) {
      DiskTier::Options disk_options;
      disk_options.directory = directory.path();
      disk_options.capacity_bytes = std::size_t{64} << 20;
      disk_options.identity = identity_of();
      auto tier = std::make_unique<FaultyTier>(std::move(DiskTier::open(disk_options)).value());
      disk = tier.get();
      options.tiers.push_back(std::move(tier));
    }
    options.identity = identity_of();
    options.retention = [this](const ModuleKey& key) {
      return key == unused ? std::nullopt : std::optional<Retention>(Retention{});
    };
    options.wake = [this] {
      const std::lock_guard lock(mutex);
      ++wakes;
      woken.notify_all();
    };
    ModulePool::Options pool_options;
    pool_options.capacity_bytes = 2 * kModule;
    pool_options.block_tokens = 4;
    pool_options.is_kept_below = [this](const ModuleKey& key) { return mover->keeps(key); };
    pool_options.on_leave = [this](ModulePin pin) { mover->take_leaving(std::move(pin)); };
    pool = std::make_unique<ModulePool>(pool_options, kTinyGeometry, make_host_allocator());
    mover = std::make_unique<TierMover>(std::move(options), *pool, metrics);
  }
  ~MoverFixture() { mover->stop(); }

  // As the engine does: waits until there is room.
  ModulePin create(int number) {
    for (;;) {
      Result<ModulePin> pin = pool->create(key_of(number), 50, 0, {});
      if (pin.ok()) {
        return std::move(pin).value();
      }
      REQUIRE(pin.error().code == ErrorCode::kQueueFull);
      wait();
    }
  }
  void encode(int number) {
    ModulePin pin = create(number);
    const std::vector<float> numbers = random_floats(kModule / sizeof(float), static_cast<unsigned>(number));
    std::memcpy(pin.kv().data, numbers.data(), kModule);
    pool->publish(pin);
    pin.release();
    mover->write_through(key_of(number));
    settle();  // a module that is being copied would not be the next to go
  }
  // Where the module was found; nullopt: nowhere.
  std::optional<TierLabel> load(int number) {
    std::optional<TierMover::Loaded> loaded;
    mover->worth_loading(key_of(number), kModule, 0);
    mover->load(create(number), true, [&](TierMover::Loaded found) { loaded = std::move(found); });
    while (!loaded.has_value()) {
      wait();
      mover->deliver();
    }
    if (loaded->tier.has_value()) {
      pool->publish(loaded->pin);
      const std::vector<float> numbers = random_floats(kModule / sizeof(float), static_cast<unsigned>(number));
      CHECK(std::memcmp(loaded->pin.kv().data, numbers.data(), kModule) == 0);
    }
    return loaded->tier;
  }
  void wait() {
    std::unique_lock lock(mutex);
    woken.wait_for(lock, std::chrono::seconds(1), [this] { return wakes > seen; });
    seen = wakes;
  }
  void settle() { REQUIRE(mover->flush(std::chrono::seconds(20))); }

  TemporaryDirectory directory;
  Metrics metrics{{}};
  ModuleKey unused = key_of(-1);
  std::mutex mutex;
  std::condition_variable woken;
  int wakes = 0;
  int seen = 0;
  FaultyTier* disk = nullptr;
  std::unique_ptr<ModulePool> pool;
  std::unique_ptr<TierMover> mover;
};

TEST_CASE("an evicted module goes to the host, from there to disk, and comes back from either", "[kv]") {
  MoverFixture fixture(2);
  fixture.disk->refuse_stores = true;  // nothing is written through: all that is on disk later came from the host
  for (int i = 1; i <= 4; ++i) {
    fixture.encode(i);
  }
  fixture.settle();
  CHECK(fixture.mover->find(key_of(1)) == TierLabel::kHost);
  CHECK(fixture.mover->find(key_of(2)) == TierLabel::kHost);
  CHECK_FALSE(fixture.mover->find(key_of(3)).has_value());  // on the device
  fixture.disk->refuse_stores = false;
  fixture.encode(5);
  fixture.encode(6);
  fixture.settle();
  CHECK(fixture.mover->find(key_of(1)) == TierLabel::kDisk);
  CHECK(fixture.mover->find(key_of(3)) == TierLabel::kHost);
  CHECK(fixture.load(3) == TierLabel::kHost);
  CHECK(fixture.load(1) == TierLabel::kDisk);
  CHECK_FALSE(fixture.load(9).has_value());
  fixture.settle();
  CHECK(fixture.pool->check_integrity());
}

TEST_CASE("what a waiting request will want is not the next to leave the host", "[kv]") {
  MoverFixture fixture(2, false);
  for (int i = 1; i <= 4; ++i) {
    fixture.encode(i);  // 1 and 2 are in the host, 1 would go first
  }
  fixture.mover->prefetch(key_of(1));
  fixture.encode(5);
  CHECK(fixture.mover->find(key_of(1)) == TierLabel::kHost);
  CHECK_FALSE(fixture.mover->find(key_of(2)).has_value());
  CHECK(fixture.load(1) == TierLabel::kHost);
}

TEST_CASE("what is asked for while it leaves stays", "[kv]") {
  MoverFixture fixture(8);
  fixture.encode(1);
  fixture.encode(2);
  fixture.settle();
  const Result<ModulePin> refused = fixture.pool->create(key_of(3), 50, 0, {});
  std::optional<ModulePin> pin = fixture.pool->pin(key_of(1));
  fixture.settle();
  // Whichever came first, nothing is lost and the accounts are right.
  const bool on_device = fixture.pool->contains(key_of(1));
  CHECK(on_device == pin.has_value());
  CHECK(on_device != (fixture.mover->find(key_of(1)) == TierLabel::kHost));
  CHECK_FALSE(refused.ok());
  CHECK(fixture.pool->check_integrity());
}

TEST_CASE("without a host tier an evicted module is saved on disk, if it is not there", "[kv]") {
  MoverFixture fixture(0);
  fixture.disk->refuse_stores = true;
  fixture.encode(1);
  fixture.encode(2);
  fixture.settle();
  fixture.disk->refuse_stores = false;
  fixture.encode(3);
  fixture.settle();
  CHECK(fixture.mover->find(key_of(1)) == TierLabel::kDisk);
  CHECK(fixture.mover->find(key_of(3)) == TierLabel::kDisk);  // written through
  CHECK(fixture.load(1) == TierLabel::kDisk);
}

TEST_CASE("a disk that fails is a miss and a metric", "[kv]") {
  MoverFixture fixture(0);
  fixture.encode(1);
  fixture.encode(2);
  fixture.settle();
  fixture.encode(3);
  fixture.settle();
  fixture.disk->fail_loads = true;  // EIO
  CHECK_FALSE(fixture.load(1).has_value());
  CHECK(fixture.metrics.tier_errors(TierLabel::kDisk).value() == 1);
  fixture.disk->fail_loads = false;
  fixture.disk->fail_stores = true;  // ENOSPC
  fixture.encode(4);
  fixture.settle();
  CHECK(fixture.metrics.tier_errors(TierLabel::kDisk).value() >= 2);
  CHECK(fixture.pool->contains(key_of(4)));
  CHECK(fixture.pool->check_integrity());
}

TEST_CASE("what no schema uses any more leaves every tier", "[kv]") {
  MoverFixture fixture(2);
  for (int i = 1; i <= 5; ++i) {
    fixture.encode(i);
  }
  fixture.settle();
  for (int i = 1; i <= 5; ++i) {
    fixture.unused = key_of(i);
    fixture.pool->remove(key_of(i));
    fixture.mover->remove(key_of(i));
    fixture.settle();
    CHECK_FALSE(fixture.mover->find(key_of(i)).has_value());
  }
  CHECK(fixture.mover->tier(TierLabel::kHost)->stats().used_bytes == 0);
  CHECK(fixture.mover->tier(TierLabel::kDisk)->stats().used_bytes == 0);
}

TEST_CASE("a tier that is slower than computing is passed by, and tried again later", "[kv]") {
  MoverFixture fixture(0);
  fixture.encode(1);
  fixture.encode(2);
  fixture.encode(3);
  fixture.settle();
  CHECK(fixture.mover->worth_loading(key_of(1), kModule, 1e-3));  // nothing is known yet
  fixture.disk->delay = std::chrono::milliseconds(50);
  CHECK(fixture.load(1) == TierLabel::kDisk);
  CHECK_FALSE(fixture.mover->worth_loading(key_of(2), kModule, 1e-3));
  CHECK(fixture.metrics.tier_bypasses(TierLabel::kDisk).value() == 1);
  CHECK(fixture.mover->worth_loading(key_of(2), kModule, 1));

  TransferCost cost;
  const TransferCost::Clock::time_point now{std::chrono::hours(1)};
  cost.observe(100, 0.01, now);
  cost.observe(std::size_t{1} << 20, 0.11, now);
  CHECK(cost.estimate(std::size_t{2} << 20, now) == Approx(0.21));
  CHECK(cost.estimate(std::size_t{2} << 20, now + std::chrono::minutes(1)) == 0);
}

TEST_CASE("ttl is purged from every tier, but for what is in use on the device", "[kv]") {
  MoverFixture fixture(2);
  for (int i = 1; i <= 4; ++i) {
    fixture.encode(i);
  }
  fixture.settle();
  Retention brief;
  brief.ttl = std::chrono::milliseconds(1);
  for (int i = 1; i <= 3; ++i) {  // 3 is on the device
    fixture.mover->set_retention(key_of(i), brief);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fixture.mover->drop_expired();
  fixture.settle();
  CHECK_FALSE(fixture.mover->find(key_of(1)).has_value());
  CHECK_FALSE(fixture.mover->find(key_of(2)).has_value());
  CHECK(fixture.mover->find(key_of(3)) == TierLabel::kDisk);
  CHECK(fixture.metrics.cache_evictions(TierLabel::kDisk, EvictionLabel::kTtl).value() == 2);
}

TEST_CASE("loads of many threads' modules, evictions and removals at once keep the accounts", "[kv]") {
  MoverFixture fixture(3);
  std::mt19937 random(7);
  for (int i = 1; i <= 12; ++i) {
    fixture.encode(i);
  }
  for (int round = 0; round < 300; ++round) {
    const int number = 1 + static_cast<int>(random() % 12);
    if (fixture.pool->contains(key_of(number))) {
      fixture.pool->pin(key_of(number));
    } else if (!fixture.load(number).has_value()) {
      FAIL("module " << number << " was lost");
    }
  }
  fixture.settle();
  CHECK(fixture.pool->check_integrity());
}

}  // namespace
}  // namespace promptcached::kv
