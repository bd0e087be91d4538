/* quire.hpp - Quire for C++17: handles that free themselves, results, steps to iterate over.
 *
 *      quire::hasher, quire::scheduler    own a handle; they can be moved, not copied
 *      quire::result<T>                   a T, or the status that says why there is none
 *      quire::step, quire::outputs        what schedule and update return, as ranges
 *
 * A thin layer over the C headers: no exceptions, no allocation, no virtual function, nothing to
 * link but libquire. What is not here is called with get(), the handle of C: quire/sched.h has all
 * functions and the rules of each.
 *
 *      auto made = quire::scheduler::create(config, quire::hasher::create(hashing));
 *      if (!made)
 *          return std::puts(made.state().sentence());  // such as "invalid num_blocks 0 (...)"
 *      quire::scheduler engine = std::move(*made);
 *      while (engine.counts().num_unfinished > 0) {
 *          auto step = engine.schedule();
 *          for (const quire::scheduled &each : *step)
 *              compute(each.req, each.num_tokens);
 *          auto out = engine.update(step->number(), sampled);
 *      }
 *
 * Examples: examples/engine.cpp. */
#ifndef QUIRE_HPP
#define QUIRE_HPP

#include <quire.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace quire
{

/* What a call returned: quire/error.h has the values. */
class [[nodiscard]] status
{
  public:
    constexpr status(int value = QUIRE_OK) noexcept : value_(value) {}
    constexpr explicit operator bool() const noexcept { return value_ == QUIRE_OK; }
    constexpr int value() const noexcept { return value_; }
    const char *name() const noexcept { return quire_status_name(value_); }
    /* Why the last call of this thread was refused; without a refusal, the sentence of the status.
     * Right after the call alone. */
    const char *sentence() const noexcept
    {
        const char *why = value_ < 0 ? quire_refusal() : "";
        return *why != '\0' ? why : quire_strerror(value_);
    }

  private:
    int value_;
};

/* A value, or the status that says why there is none. Reading a value that is not there returns a
 * T that was made without arguments. */
template <class T> class [[nodiscard]] result
{
  public:
    result(status why) noexcept : state_(why), value_() {}
    result(T value) noexcept : state_(), value_(std::move(value)) {}
    explicit operator bool() const noexcept { return static_cast<bool>(state_); }
    status state() const noexcept { return state_; }
    T &operator*() noexcept { return value_; }
    const T &operator*() const noexcept { return value_; }
    T *operator->() noexcept { return &value_; }
    const T *operator->() const noexcept { return &value_; }

  private:
    status state_;
    T value_;
};

/* Elements that the library lends: valid as long as the C header says. */
template <class T> class span
{
  public:
    constexpr span() noexcept = default;
    constexpr span(const T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr const T *begin() const noexcept { return data_; }
    constexpr const T *end() const noexcept { return size_ == 0 ? data_ : data_ + size_; }
    constexpr const T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr const T &operator[](std::size_t i) const noexcept { return data_[i]; }

  private:
    const T *data_ = nullptr;
    std::size_t size_ = 0;
};

inline quire_bytes bytes(std::string_view text) noexcept
{
    return quire_bytes{text.data(), text.size()};
}

/* Owns a handle of C, which Destroy frees. */
template <class T, void (*Destroy)(T *)> class handle
{
  public:
    handle() noexcept = default;
    explicit handle(T *raw) noexcept : raw_(raw) {}
    handle(handle &&other) noexcept : raw_(other.release()) {}
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) {
            Destroy(raw_);
            raw_ = other.release();
        }
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { Destroy(raw_); }
    T *get() const noexcept { return raw_; }
    explicit operator bool() const noexcept { return raw_ != nullptr; }
    T *release() noexcept { return std::exchange(raw_, nullptr); }

  private:
    T *raw_ = nullptr;
};

/* Owns a quire_hasher: the hashes of blocks. */
class hasher : public handle<quire_hasher, quire_hasher_destroy>
{
  public:
    using handle::handle;
    static result<hasher> create(const quire_hasher_config &config = QUIRE_HASHER_CONFIG_INIT,
                                 const quire_allocator *allocator = nullptr) noexcept
    {
        quire_hasher *raw = nullptr;
        if (status made = quire_hasher_create(&config, allocator, &raw); !made)
            return made;
        return hasher(raw);
    }
};

/* Owns a quire_pool: blocks, and the index that finds blocks by their content. */
class pool : public handle<quire_pool, quire_pool_destroy>
{
  public:
    using handle::handle;
    static result<pool> create(const quire_pool_config &config,
                               const quire_allocator *allocator = nullptr) noexcept
    {
        quire_pool *raw = nullptr;
        if (status made = quire_pool_create(&config, allocator, &raw); !made)
            return made;
        return pool(raw);
    }
};

/* Owns a quire_cache: the blocks of sequences, without a scheduler. */
class cache : public handle<quire_cache, quire_cache_destroy>
{
  public:
    using handle::handle;
    static result<cache> create(const quire_cache_config &config,
                                const quire_allocator *allocator = nullptr) noexcept
    {
        quire_cache *raw = nullptr;
        if (status made = quire_cache_create(&config, allocator, &raw); !made)
            return made;
        return cache(raw);
    }
};

/* A request in a step. */
struct scheduled {
    quire_req req = 0;
    quire_step_kind kind = QUIRE_STEP_RUNNING;
    std::uint32_t num_tokens = 0;          /* to compute, drafts included */
    std::uint32_t num_computed_tokens = 0; /* before this step */
    std::uint32_t num_output_tokens = 0;
    bool was_in_last_step = false;
    span<quire_block_span> blocks; /* of each group: QUIRE_STEP_RUNNING the new ones, otherwise all */
    span<quire_token> drafts;
};

/* What schedule has decided; valid until the next schedule. */
class step
{
  public:
    class iterator
    {
      public:
        iterator(const step *of, std::uint32_t at) noexcept : of_(of), at_(at) {}
        scheduled operator*() const noexcept { return (*of_)[at_]; }
        iterator &operator++() noexcept
        {
            ++at_;
            return *this;
        }
        bool operator!=(const iterator &other) const noexcept { return at_ != other.at_; }

      private:
        const step *of_;
        std::uint32_t at_;
    };

    step() noexcept = default;
    step(const quire_step *raw, std::uint32_t num_groups) noexcept
        : raw_(raw), num_groups_(num_groups)
    {
    }
    const quire_step *get() const noexcept { return raw_; }
    std::uint64_t number() const noexcept { return raw_->step; }
    std::uint32_t size() const noexcept { return raw_->num_reqs; }
    std::uint32_t total_tokens() const noexcept { return raw_->total_tokens; }
    span<quire_req> finished() const noexcept { return {raw_->finished, raw_->num_finished}; }
    span<quire_req> preempted() const noexcept { return {raw_->preempted, raw_->num_preempted}; }
    span<quire_step_copy> copies() const noexcept { return {raw_->copies, raw_->num_copies}; }
    iterator begin() const noexcept { return {this, 0}; }
    iterator end() const noexcept { return {this, raw_->num_reqs}; }

    scheduled operator[](std::uint32_t i) const noexcept
    {
        scheduled made;
        made.req = raw_->reqs[i];
        made.kind = static_cast<quire_step_kind>(raw_->kinds[i]);
        made.num_tokens = raw_->num_tokens[i];
        made.num_computed_tokens = raw_->num_computed_tokens[i];
        made.num_output_tokens = raw_->num_output_tokens[i];
        made.was_in_last_step = raw_->was_in_last_step[i] != 0;
        made.blocks = {raw_->blocks + std::size_t{i} * num_groups_, num_groups_};
        made.drafts = {raw_->drafts + raw_->draft_start[i],
                       raw_->draft_start[i + 1] - raw_->draft_start[i]};
        return made;
    }

  private:
    const quire_step *raw_ = nullptr;
    std::uint32_t num_groups_ = 0;
};

/* What update has made of a step's tokens; valid until the next update. */
class outputs
{
  public:
    outputs() noexcept = default;
    explicit outputs(const quire_outputs *raw) noexcept : raw_(raw) {}
    const quire_outputs *get() const noexcept { return raw_; }
    std::uint32_t size() const noexcept { return raw_->num_outputs; }
    const quire_output *begin() const noexcept { return raw_->outputs; }
    const quire_output *end() const noexcept
    {
        return raw_->num_outputs == 0 ? raw_->outputs : raw_->outputs + raw_->num_outputs;
    }

  private:
    const quire_outputs *raw_ = nullptr;
};

inline span<quire_token> new_tokens(const quire_output &output) noexcept
{
    return {output.new_tokens, output.num_new_tokens};
}

/* Owns a quire_sched, and the hasher that it uses. */
class scheduler
{
  public:
    scheduler() noexcept = default;

    /* config.hasher is not read: blocks_hasher is used, and may be empty without prefix caching. */
    static result<scheduler> create(quire_sched_config config, hasher blocks_hasher,
                                    const quire_allocator *allocator = nullptr) noexcept
    {
        scheduler made;
        quire_sched *raw = nullptr;
        config.hasher = blocks_hasher.get();
        if (status why = quire_sched_create(&config, allocator, &raw); !why)
            return why;
        made.hasher_ = std::move(blocks_hasher);
        made.sched_ = owner(raw);
        made.num_groups_ = config.cache->num_groups;
        return made;
    }
    /* The same; the hasher's status if there is no hasher. */
    static result<scheduler> create(const quire_sched_config &config, result<hasher> blocks_hasher,
                                    const quire_allocator *allocator = nullptr) noexcept
    {
        if (!blocks_hasher)
            return blocks_hasher.state();
        return create(config, std::move(*blocks_hasher), allocator);
    }

    quire_sched *get() const noexcept { return sched_.get(); }
    explicit operator bool() const noexcept { return static_cast<bool>(sched_); }

    result<quire_req> add(const quire_request_params &params) noexcept
    {
        quire_req req = 0;
        if (status made = quire_sched_add(get(), &params, &req); !made)
            return made;
        return req;
    }
    result<quire_req> fork(quire_req parent, const quire_request_params &params) noexcept
    {
        quire_req child = 0;
        if (status made = quire_sched_fork(get(), parent, &params, &child); !made)
            return made;
        return child;
    }
    status finish(quire_req req, quire_req_status why = QUIRE_REQ_FINISHED_ABORTED) noexcept
    {
        return quire_sched_finish(get(), &req, 1, why, nullptr);
    }
    status pin(quire_req req, std::uint64_t ttl_ns) noexcept
    {
        return quire_sched_pin(get(), req, ttl_ns);
    }
    status preempt(quire_req req, quire_preempt_mode mode = QUIRE_PREEMPT_CHEAPER) noexcept
    {
        return quire_sched_preempt(get(), req, mode);
    }

    result<step> schedule() noexcept
    {
        const quire_step *raw = nullptr;
        if (status made = quire_sched_schedule(get(), &raw); !made)
            return made;
        return step(raw, num_groups_);
    }
    result<outputs> update(std::uint64_t number, const quire_model_output &output) noexcept
    {
        const quire_outputs *raw = nullptr;
        if (status made = quire_sched_update(get(), number, &output, &raw); !made)
            return made;
        return outputs(raw);
    }
    /* One token for each request of the step, in the order of the step. */
    result<outputs> update(std::uint64_t number, const quire_token *sampled) noexcept
    {
        quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
        output.sampled = sampled;
        return update(number, output);
    }
    status forget_step(std::uint64_t number) noexcept
    {
        return quire_sched_forget_step(get(), number);
    }

    /* The user pointer of a request; the caller knows its type. */
    template <class T> T *user(quire_req req) const noexcept
    {
        return static_cast<T *>(quire_sched_get_user(get(), req));
    }
    quire_req find(std::string_view id) const noexcept
    {
        return quire_sched_find(get(), bytes(id));
    }
    quire_sched_counts counts() const noexcept { return quire_sched_get_counts(get()); }
    quire_usage usage() const noexcept { return quire_sched_get_usage(get()); }
    /* Its pool and its cache are the scheduler's: not to be destroyed. */
    quire_cache *raw_cache() const noexcept { return quire_sched_get_cache(get()); }
    status check() const noexcept { return quire_sched_check(get()); }

  private:
    using owner = handle<quire_sched, quire_sched_destroy>;

    hasher hasher_; /* is destroyed after sched_ */
    owner sched_;
    std::uint32_t num_groups_ = 0;

  public:
    scheduler(scheduler &&) noexcept = default;
    scheduler &operator=(scheduler &&other) noexcept
    {
        sched_ = std::move(other.sched_); /* the old scheduler goes before its hasher */
        hasher_ = std::move(other.hasher_);
        num_groups_ = other.num_groups_;
        return *this;
    }
};

} // namespace quire

#endif
