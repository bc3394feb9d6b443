// However the same tokens are cut into segments, batches and chunks, the logits are the same.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/model/model_fixture.h"

namespace promptcached::model {
namespace {

constexpr double kTolerance = 2e-5;  // fp32, relative to the largest logit

// Ascending cut points, 0 and n included, that divide n tokens into `parts` segments.
std::vector<std::int32_t> random_cuts(std::int32_t n, std::int32_t parts, unsigned seed) {
  std::vector<std::int32_t> inner = count_from(1, static_cast<std::size_t>(n - 1));
  std::mt19937 generator(seed);
  std::shuffle(inner.begin(), inner.end(), generator);
  inner.resize(static_cast<std::size_t>(parts - 1));
  inner.push_back(0);
  inner.push_back(n);
  std::sort(inner.begin(), inner.end());
  return inner;
}

// Encodes tokens cut by cut; each segment sees those before it.
std::vector<std::unique_ptr<Block>> encode(CausalLm& model, const std::vector<std::int32_t>& tokens,
                                           const std::vector<std::int32_t>& cuts) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    BatchBuilder builder;
    const RowRange rows = builder.group(slice(tokens, cuts[i], cuts[i + 1]),
                                        count_from(cuts[i], static_cast<std::size_t>(cuts[i + 1] - cuts[i])));
    for (const auto& block : blocks) {
      builder.read(*block, rows);
    }
    blocks.push_back(std::make_unique<Block>(model, cuts[i + 1] - cuts[i]));
    builder.write(*blocks.back(), 0, rows);
    CHECK(run(model, builder.batch()).empty());  // no logits asked for
  }
  return blocks;
}

}  // namespace

TEST_CASE("Segmented equals unsegmented", "[model][segments]") {
  for (const std::string& device : devices()) {
    for (const char* name : {"tiny-gqa", "tiny-mha-untied", "tiny-mqa", "tiny-head-dim"}) {
      const auto model = load(oracle_path(name), "fp32", device);
      const std::vector<std::int32_t> tokens = random_tokens(330, model->info().vocab_size, 7);
      const std::vector<float> whole = run_whole(*model, tokens);
      for (const std::int32_t parts : {1, 2, 3, 5, 8, 16, 32}) {
        INFO(name << " on " << device << " in " << parts << " segments");
        const auto blocks = encode(*model, tokens, random_cuts(300, parts, static_cast<unsigned>(parts)));
        BatchBuilder builder;
        const RowRange rows = builder.group(slice(tokens, 300, 330), count_from(300, 30));
        for (const auto& block : blocks) {
          builder.read(*block, rows);
        }
        builder.want(rows);
        const std::vector<float> logits = run(*model, builder.batch());
        CHECK(difference(logits, tail(whole, logits.size())) < kTolerance);
      }
    }
  }
}

TEST_CASE("Chunked prefill equals the whole, whatever the chunks", "[model][segments]") {
  for (const std::string& device : devices()) {
    const auto model = load(oracle_path("tiny-gqa"), "fp32", device);
    const std::vector<std::int32_t> tokens = random_tokens(200, model->info().vocab_size, 3);
    const std::vector<float> whole = run_whole(*model, tokens);
    for (const std::int32_t chunk : {1, 7, 64, 199}) {
      INFO("chunks of " << chunk << " on " << device);
      const Block block(*model, 256);
      std::vector<float> logits;
      for (std::int32_t begin = 0; begin < 200; begin += chunk) {
        const std::int32_t end = std::min(200, begin + chunk);
        BatchBuilder builder;
        const RowRange rows =
            builder.group(slice(tokens, begin, end), count_from(begin, static_cast<std::size_t>(end - begin)));
        builder.read(block, 0, begin, {rows});  // empty at first
        builder.write(block, begin, rows);
        builder.want(rows);
        const std::vector<float> part = run(*model, builder.batch());
        logits.insert(logits.end(), part.begin(), part.end());
      }
      CHECK(difference(logits, whole) < kTolerance);
    }
  }
}

TEST_CASE("Sequences that share reads compute what each computes alone", "[model][segments]") {
  for (const std::string& device : devices()) {
    const auto model = load(oracle_path("tiny-gqa"), "fp32", device);
    const std::int32_t vocab = model->info().vocab_size;
    const std::vector<std::int32_t> module_tokens = random_tokens(301, vocab, 11);
    const auto modules = encode(*model, module_tokens, {0, 150, 301});
    // Decoding rows and prefilling rows side by side; the middle one has a private block too, the third shares only one
    // of the two modules, so that the shared reads' rows are not a run.
    const std::vector<std::vector<std::int32_t>> news = {random_tokens(1, vocab, 1), random_tokens(1, vocab, 2),
                                                         random_tokens(9, vocab, 3), random_tokens(14, vocab, 4),
                                                         random_tokens(1, vocab, 5)};
    const Block own(*model, 20);
    {
      BatchBuilder builder;
      const RowRange rows = builder.group(random_tokens(20, vocab, 6), count_from(400, 20));
      builder.write(own, 0, rows);
      run(*model, builder.batch());
    }
    const auto add_private = [&](BatchBuilder* builder, std::size_t i, RowRange rows) {
      if (i == 1) {
        builder->read(own, 3, 15, {rows});
      }
    };
    BatchBuilder together;
    std::vector<RowRange> rows;
    for (const auto& tokens : news) {
      rows.push_back(together.group(tokens, count_from(450, tokens.size())));
    }
    together.read(*modules[0], 0, 150, {rows[0], rows[1], rows[3], rows[4]});
    together.read(*modules[1], 0, 151, rows);
    std::vector<float> alone;
    for (std::size_t i = 0; i < news.size(); ++i) {
      add_private(&together, i, rows[i]);
      together.want(rows[i]);
      BatchBuilder single;
      const RowRange its_rows = single.group(news[i], count_from(450, news[i].size()));
      if (i != 2) {
        single.read(*modules[0], its_rows);
      }
      single.read(*modules[1], its_rows);
      add_private(&single, i, its_rows);
      single.want(its_rows);
      const std::vector<float> logits = run(*model, single.batch());
      alone.insert(alone.end(), logits.begin(), logits.end());
    }
    CHECK(difference(run(*model, together.batch()), alone) < kTolerance);
  }
}

TEST_CASE("A decoding row's logits do not depend on its batch", "[model][segments]") {
  const auto model = load(oracle_path("tiny-gqa"));  // the CPU's own loops
  const std::int32_t vocab = model->info().vocab_size;
  const std::vector<std::int32_t> text = random_tokens(300, vocab, 51);
  const std::vector<std::int32_t> tokens = random_tokens(9, vocab, 52);
  std::vector<std::vector<std::unique_ptr<Block>>> copies;  // the same KV for each row, in two blocks
  BatchBuilder apart;
  BatchBuilder sharing;
  std::vector<RowRange> rows;
  std::vector<float> alone;
  for (const std::int32_t token : tokens) {
    copies.push_back(encode(*model, text, {0, 120, 300}));
    rows.push_back(apart.group({token}, {400}));
    sharing.group({token}, {400});
    BatchBuilder single;
    const RowRange row = single.group({token}, {400});
    for (const auto& block : copies.back()) {
      apart.read(*block, rows.back());
      single.read(*block, row);
    }
    apart.want(rows.back());
    sharing.want(rows.back());
    single.want(row);
    const std::vector<float> logits = run(*model, single.batch());
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  for (const auto& block : copies.front()) {
    sharing.read(*block, 0, block->tokens(), rows);
  }
  CHECK(run(*model, apart.batch()) == alone);                           // to the last bit
  CHECK(difference(run(*model, sharing.batch()), alone) < kTolerance);  // computed together, in another order
}

TEST_CASE("A read is seen by its rows alone", "[model][segments]") {
  for (const std::string& device : devices()) {
    const auto model = load(oracle_path("tiny-gqa"), "fp32", device);
    const std::int32_t vocab = model->info().vocab_size;
    const auto module = encode(*model, random_tokens(40, vocab, 21), {0, 40});
    const std::vector<std::int32_t> tokens = random_tokens(12, vocab, 22);
    // Rows 8 to 11 see the module, those before do not: a suffix of a causal group.
    BatchBuilder builder;
    const RowRange rows = builder.group(tokens, count_from(50, 12));
    builder.read(*module[0], 0, 40, {{8, 12}});
    builder.want(rows);
    const std::vector<float> logits = run(*model, builder.batch());
    // The same in two steps.
    const Block own(*model, 8);
    BatchBuilder first;
    const RowRange first_rows = first.group(slice(tokens, 0, 8), count_from(50, 8));
    first.write(own, 0, first_rows);
    first.want(first_rows);
    std::vector<float> expected = run(*model, first.batch());
    BatchBuilder second;
    const RowRange second_rows = second.group(slice(tokens, 8, 12), count_from(58, 4));
    second.read(own, second_rows);
    second.read(*module[0], second_rows);
    second.want(second_rows);
    const std::vector<float> rest = run(*model, second.batch());
    expected.insert(expected.end(), rest.begin(), rest.end());
    CHECK(difference(logits, expected) < kTolerance);
  }
}

TEST_CASE("Writes store the rows they name and nothing else", "[model][segments]") {
  const auto model = load(oracle_path("tiny-gqa"));
  const std::int32_t vocab = model->info().vocab_size;
  const std::vector<std::int32_t> tokens = random_tokens(10, vocab, 31);
  const Block whole(*model, 10);
  const Block parts(*model, 16);
  BatchBuilder builder;
  const RowRange rows = builder.group(tokens, count_from(0, 10));
  builder.write(whole, 0, rows);
  builder.write(parts, 5, {2, 6});
  run(*model, builder.batch());
  const std::size_t head_bytes = model->info().head_dim * sizeof(float);
  const std::size_t heads = std::size_t{2} * model->info().layers * model->info().kv_heads;
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::int32_t token = 0; token < 16; ++token) {
      const std::byte* stored = parts.array().data + (head * 16 + token) * head_bytes;
      if (token >= 5 && token < 9) {
        CHECK(std::memcmp(stored, whole.array().data + (head * 10 + token - 3) * head_bytes, head_bytes) == 0);
      } else {
        CHECK(std::all_of(stored, stored + head_bytes, [](std::byte b) { return b == std::byte{0xFF}; }));
      }
    }
  }
}

TEST_CASE("KV in 16 bits stays near fp32, and is the same fresh or read back", "[model][segments]") {
  for (const std::string& device : devices()) {
    for (const char* name : {"tiny-gqa", "tiny-head-dim"}) {
      const auto exact = load(oracle_path(name), "fp32", device);
      const std::vector<std::int32_t> tokens = random_tokens(120, exact->info().vocab_size, 41);
      const std::vector<float> expected = run_whole(*exact, tokens);
      for (const auto& [kv_dtype, tolerance] : {std::pair("fp16", 5e-3), std::pair("bf16", 5e-2)}) {
        INFO(name << " on " << device << ", KV in " << kv_dtype);
        const auto model = load(oracle_path(name), kv_dtype, device);
        CHECK(model->info().kv_element_bytes == 2);
        const std::vector<float> whole = run_whole(*model, tokens);
        CHECK(difference(whole, expected) < tolerance);
        CHECK(difference(whole, expected) > 1e-6);  // it did round
        const auto blocks = encode(*model, tokens, {0, 33, 100});
        BatchBuilder builder;
        const RowRange rows = builder.group(slice(tokens, 100, 120), count_from(100, 20));
        builder.read(*blocks[0], rows);
        builder.read(*blocks[1], rows);
        builder.want(rows);
        const std::vector<float> logits = run(*model, builder.batch());
        // fp32 arithmetic in another order moves a few roundings to the other neighbour.
        CHECK(difference(logits, tail(whole, logits.size())) < tolerance / 5);
      }
    }
  }
}

TEST_CASE("A batch that would touch foreign memory is refused", "[model][segments]") {
  const auto model = load(oracle_path("tiny-gqa"));
  const Block block(*model, 8);
  const auto refusal = [&](const std::function<void(ForwardBatch&)>& spoil) {
    BatchBuilder builder;
    const RowRange rows = builder.group({5, 6, 7}, {0, 1, 2});
    builder.read(block, 0, 0, {rows});
    builder.write(block, 0, rows);
    builder.want(rows);
    ForwardBatch batch = builder.batch();
    spoil(batch);
    return message_of([&] { model->forward(batch); });
  };
  CHECK(refusal([](ForwardBatch& b) { b.reads[0].count = 9; }).find("outside its KV array") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.writes[0].offset = 6; }).find("outside its KV array") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.writes[0].rows.end = 4; }).find("outside the batch") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.tokens[1] = 128; }).find("outside the vocabulary") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.positions[1] = 512; }).find("outside the model's range") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.causal_groups[0].end = 2; }).find("partition") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.logit_rows = {1, 1}; }).find("logit rows") != std::string::npos);
  CHECK(refusal([](ForwardBatch& b) { b.reads[0].rows = {{0, 2}, {1, 3}}; }).find("out of order") != std::string::npos);
}

}  // namespace promptcached::model
