// SPDX-License-Identifier: Apache-2.0
// read_datasets: rows are read on the calling thread, parsed and encoded on all of them, and collected in order.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "../../kernels/error.h"
#include "../../kernels/thread_pool.h"
#include "../text/chat_template.h"
#include "dataset.h"
#include "row_collector.h"
#include "row_encoder.h"
#include "rows/row_reader.h"
#include "samples/token_cache.h"

namespace bantam {
namespace {

// Rows that are in memory at a time.
constexpr size_t kRoundRows = 4096, kRoundBytes = size_t{16} << 20;

class Preparation {
 public:
  Preparation(const std::shared_ptr<const Tokenizer>& tokenizer,
              const std::shared_ptr<const ChatTemplate>& chat_template, const DataOptions& options,
              RowCollector& collector)
      : tokenizer_(tokenizer),
        chat_template_(chat_template),
        options_(options),
        collector_(collector),
        pool_(options.num_threads > 0 ? options.num_threads
                                      : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

  void read(const DatasetSpec& spec) {
    const auto files = data_files(spec.path);
    SourceReport source{.path = spec.path, .weight = spec.weight, .files = static_cast<int64_t>(files.size())};
    DatasetSpec typed = spec;
    std::optional<RowEncoder> encoder;
    for (const auto& file : files) {
      const auto reader =
          open_rows(file, {.sample_by = spec.sample_by, .normalize_newlines = options_.normalize_newlines});
      int64_t rows = 0;
      while (read_round(*reader)) {
        rows += static_cast<int64_t>(used_);
        each_slot([&](Slot& s) { parse(s, *reader); });
        if (!encoder) {
          // The type is that of the first row, whatever becomes of it.
          const Slot* first = first_parsed();
          source.format = reader->format();
          if (typed.type == DatasetType::automatic && first != nullptr) {
            try {
              typed.type = detect_type(first->json, spec);
            } catch (const Error& e) {
              throw located(e, *reader, first->raw.line);
            }
            source.detected = true;
          }
          if (typed.type != DatasetType::automatic) {
            source.type = typed.type;
            collector_.begin_source(typed, source);
            encoder.emplace(typed, tokenizer_, chat_template_, options_.mask);
          }
        }
        if (encoder) each_slot([&](Slot& s) { encode(s, *encoder, *reader); });
        if (!encoder) throw first_error(*reader);
        collect(*reader);
      }
      if (rows == 0) throw Error(ErrorCode::data, str(reader->file(), ": no rows (all lines are blank)"));
      if (encoder && collector_.source().format.find(reader->format()) == std::string::npos)
        collector_.source().format += " and " + reader->format();
    }
  }

 private:
  struct Slot {
    RawRow raw;
    nlohmann::ordered_json json;
    RowNotes notes;
    EncodedRow row;
    std::optional<Error> malformed;
    std::exception_ptr error;
  };

  bool read_round(RowReader& reader) {
    used_ = 0;
    for (size_t bytes = 0; used_ < kRoundRows && bytes < kRoundBytes; ++used_) {
      if (used_ == slots_.size()) slots_.emplace_back();
      if (!reader.next(slots_[used_].raw)) break;
      bytes += slots_[used_].raw.text.size();
    }
    return used_ > 0;
  }

  template <class F>
  void each_slot(const F& f) {
    std::atomic<size_t> next{0};
    pool_.run([&](int) {
      for (size_t i = next++; i < used_; i = next++) {
        try {
          f(slots_[i]);
        } catch (...) {
          slots_[i].error = std::current_exception();
        }
      }
    });
  }

  static Error located(const Error& e, const RowReader& reader, int64_t line) {
    return Error(e.code(), str(reader.file(), ":", line, ": ", e.what()), e.hint());
  }

  static void parse(Slot& s, const RowReader& reader) {
    s.notes = {};
    s.malformed.reset();
    s.error = nullptr;
    try {
      s.json = reader.parse(s.raw, s.notes);
    } catch (const Error& e) {
      s.malformed = e;
    }
  }

  static void encode(Slot& s, const RowEncoder& encoder, const RowReader& reader) {
    if (s.malformed || s.error) return;
    try {
      s.row = encoder.encode(s.json);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::data) throw located(e, reader, s.raw.line);
      s.malformed = located(e, reader, s.raw.line);
    }
    s.json = nullptr;  // here, where many threads free it
    constexpr size_t kKept = size_t{1} << 16;
    if (s.raw.text.capacity() > kKept) std::string().swap(s.raw.text);  // long rows would add up over the slots
  }

  const Slot* first_parsed() const {
    for (size_t i = 0; i < used_; ++i)
      if (!slots_[i].malformed && !slots_[i].error) return &slots_[i];
    return nullptr;
  }

  // Of a round in which no row could be parsed, before the type was known.
  Error first_error(const RowReader& reader) const {
    for (size_t i = 0; i < used_; ++i) {
      if (slots_[i].error) std::rethrow_exception(slots_[i].error);
      if (slots_[i].malformed) return *slots_[i].malformed;
    }
    return Error(ErrorCode::internal, str(reader.file(), ": a round without rows"));
  }

  void collect(const RowReader& reader) {
    for (size_t i = 0; i < used_; ++i) {
      Slot& s = slots_[i];
      if (s.error) std::rethrow_exception(s.error);
      if (s.malformed) {
        collector_.malformed(*s.malformed, s.malformed->hint(), reader.file(), s.raw.line);
      } else {
        collector_.add(std::move(s.row), s.notes.carriage_returns, reader.file(), s.raw.line);
      }
    }
    done_ += static_cast<int64_t>(used_);
    if (options_.progress) options_.progress(done_);
  }

  const std::shared_ptr<const Tokenizer>& tokenizer_;
  const std::shared_ptr<const ChatTemplate>& chat_template_;
  const DataOptions& options_;
  RowCollector& collector_;
  ThreadPool pool_;
  std::vector<Slot> slots_;
  size_t used_ = 0;
  int64_t done_ = 0;
};

// Everything that decides which samples and which report come out. The version counts changes of this code that give
// other samples of the same input.
std::string cache_key(const std::vector<DatasetSpec>& specs, const Tokenizer& tokenizer,
                      const ChatTemplate* chat_template, const DataOptions& o) {
  constexpr int kVersion = 2;
  CacheKey key;
  key.add("version", kVersion);
  for (const DatasetSpec& s : specs) {
    key.add("path", s.path)
        .add("type", static_cast<int>(s.type))
        .add("weight", s.weight)
        .add("sample_by", static_cast<int>(s.sample_by));
    for (const auto* field : {&s.field_prompt, &s.field_completion, &s.field_text, &s.field_instruction, &s.field_input,
                              &s.field_output, &s.field_system, &s.field_messages, &s.field_role, &s.field_content,
                              &s.field_tools, &s.field_train, &s.field_weight})
      key.add("field", *field);
    for (const auto& [name, role] : s.roles) key.add("name", name).add("role", role);
    for (const auto& file : data_files(s.path)) key.add("file", file.string()).add_file(file);
  }
  for (const auto& [name, content] : tokenizer.files()) key.add("tokenizer", name).add("content", content);
  key.add("bos", tokenizer.bos_id()).add("eos", tokenizer.eos_id()).add("vocab", tokenizer.vocab_size());
  key.add("adds_bos", tokenizer.adds_bos()).add("adds_eos", tokenizer.adds_eos());
  if (chat_template) key.add("chat_template", chat_template->fingerprint());
  key.add("max_seq_length", o.max_seq_length).add("excess", static_cast<int>(o.excess_length_strategy));
  key.add("max_excess_fraction", o.max_excess_fraction).add("max_malformed_rows", o.max_malformed_rows);
  key.add("normalize_newlines", o.normalize_newlines);
  key.add("train_on_inputs", o.mask.train_on_inputs).add("train_on_eos", static_cast<int>(o.mask.train_on_eos));
  for (const std::string& role : o.mask.roles_to_train) key.add("role_to_train", role);
  return key.text();
}

}  // namespace

Dataset read_datasets(const std::vector<DatasetSpec>& specs, const std::shared_ptr<const Tokenizer>& tokenizer,
                      const DataOptions& options, const std::shared_ptr<const ChatTemplate>& chat_template) {
  if (specs.empty()) throw Error(ErrorCode::usage, "no dataset is named", "list at least one under datasets");
  Dataset out;
  for (const DatasetSpec& spec : specs) out.source_weights.push_back(spec.weight);
  const auto prepare = [&](auto& writer) {
    RowCollector collector(options, [&](const Sample& s) { writer.add(s); });
    Preparation preparation(tokenizer, chat_template, options, collector);
    for (const DatasetSpec& spec : specs) preparation.read(spec);
    out.report = collector.finish();
  };
  if (options.cache.empty()) {
    SampleWriter writer;
    prepare(writer);
    out.samples = writer.finish();
    return out;
  }
  const TokenCache cache(options.cache);
  const std::string key = cache_key(specs, *tokenizer, chat_template.get(), options);
  if (auto found = cache.find(key, &out.cache_problem)) {
    try {
      out.report = DataReport::from_json(std::string(found->metadata()));
      out.samples = *std::move(found);
      out.from_cache = true;
      return out;
    } catch (const Error& e) {
      out.cache_problem = e.what();  // what another program wrote is a miss, and replaced
    }
  }
  TokenCacheWriter writer = cache.writer(key);
  prepare(writer);
  out.samples = writer.commit(out.report.to_json());
  out.cache_problem = writer.why_not_cached();
  cache.trim(options.cache_bytes);
  return out;
}

}  // namespace bantam
