//! Quire for Rust: the scheduler and KV-cache manager of an LLM inference engine.
//!
//! ```no_run
//! use quire::{Config, Request, Scheduler};
//!
//! let mut engine = Scheduler::new(&Config { num_blocks: 1000, max_model_len: 4096, ..Config::default() })?;
//! engine.add(&Request { id: "one", prompt: &[1, 2, 3], max_tokens: 5, ..Request::default() })?;
//! while engine.counts().num_unfinished > 0 {
//!     let step = engine.schedule()?;
//!     let (number, sampled) = (step.number(), vec![7; step.len()]); // where a model would run
//!     for output in engine.update(number, &sampled)? {
//!         println!("{:?}", output.new_tokens);
//!     }
//! }
//! # Ok::<(), quire::Error>(())
//! ```
//!
//! A [`Step`] borrows the scheduler: it ends where the C library's step ends, with the next call that changes the
//! scheduler. What is not here is called through [`sys`] with [`Scheduler::as_ptr`].
use std::{collections::VecDeque, ffi::CStr, fmt, marker::PhantomData, os::raw::c_int, ptr, slice};

pub use quire_sys as sys;

/// Why a call did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// A status of `quire/error.h`: above 0 an expected outcome, below 0 an error.
    pub status: i32,
    /// The field, the value and the range, as "invalid num_blocks 0 (expected 1..2147483647)".
    pub sentence: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

fn check(status: c_int) -> Result<()> {
    if status == sys::QUIRE_OK as c_int {
        return Ok(());
    }
    // Safety: both functions return static or thread-local text that is never NULL.
    let (refusal, general) = unsafe { (CStr::from_ptr(sys::quire_refusal()), CStr::from_ptr(sys::quire_strerror(status))) };
    let text = if status < 0 && !refusal.to_bytes().is_empty() { refusal } else { general };
    Err(Error { status, sentence: text.to_string_lossy().into_owned() })
}

fn bytes(text: &[u8]) -> sys::quire_bytes {
    sys::quire_bytes { data: text.as_ptr().cast(), len: text.len() }
}

/// Elements that the library lends.
///
/// # Safety
/// `data` has `size` elements that live as long as `'a`.
unsafe fn lent<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, size)
    }
}

/// A struct of C with its size, and zeros: the default of every field.
macro_rules! sized {
    ($name:ident) => {{
        // Safety: structs of the C interface are numbers and pointers, for which zeros are valid.
        let mut made: sys::$name = unsafe { std::mem::zeroed() };
        made.size = std::mem::size_of::<sys::$name>();
        made
    }};
}

/// A scheduler with one group of full-attention layers. 0: the library's default.
#[derive(Clone, Debug)]
pub struct Config {
    pub num_blocks: u32,
    pub block_size: u32,
    pub num_kv_heads: u32,
    pub head_size: u32,
    /// 0: attention to all tokens.
    pub sliding_window: u32,
    pub max_model_len: u32,
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
    pub max_requests: u32,
    pub async_scheduling: bool,
    pub profile: sys::quire_profile,
    /// Of the hashes; empty: random, so that hashes differ from process to process.
    pub seed: Vec<u8>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            num_blocks: 0,
            block_size: 16,
            num_kv_heads: 8,
            head_size: 128,
            sliding_window: 0,
            max_model_len: 0,
            max_num_seqs: 0,
            max_num_batched_tokens: 0,
            max_requests: 0,
            async_scheduling: false,
            profile: sys::QUIRE_PROFILE_DEFAULT,
            seed: Vec::new(),
        }
    }
}

/// A request to add.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    pub id: &'a str,
    pub prompt: &'a [i32],
    /// Output tokens; 0: as many as fit.
    pub max_tokens: u32,
    pub stop_tokens: &'a [i32],
    pub priority: i32,
    pub arrival_time: f64,
    pub cache_salt: &'a str,
    /// Given back by [`Scheduler::user`] and in outputs.
    pub user: usize,
}

/// Names a request as long as it lives.
pub type Req = sys::quire_req;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Running,
    New,
    Resumed,
}

/// A request in a step.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled<'a> {
    pub req: Req,
    pub kind: Kind,
    /// To compute, drafts included.
    pub num_tokens: u32,
    /// Before this step.
    pub num_computed_tokens: u32,
    /// Running: the new blocks alone; otherwise all blocks.
    pub blocks: &'a [sys::quire_block],
}

/// What [`Scheduler::schedule`] has decided.
#[derive(Debug)]
pub struct Step<'a> {
    raw: &'a sys::quire_step,
}

impl<'a> Step<'a> {
    pub fn number(&self) -> u64 {
        self.raw.step
    }
    pub fn len(&self) -> usize {
        self.raw.num_reqs as usize
    }
    pub fn is_empty(&self) -> bool {
        self.raw.num_reqs == 0
    }
    /// The struct of C, with all that a step has.
    pub fn raw(&self) -> &'a sys::quire_step {
        self.raw
    }
    pub fn preempted(&self) -> &'a [Req] {
        unsafe { lent(self.raw.preempted, self.raw.num_preempted as usize) }
    }
    pub fn finished(&self) -> &'a [Req] {
        unsafe { lent(self.raw.finished, self.raw.num_finished as usize) }
    }
    pub fn iter(&self) -> impl Iterator<Item = Scheduled<'a>> + 'a {
        let raw = self.raw;
        // Safety: the arrays have num_reqs elements; there is one group of blocks for each request.
        (0..raw.num_reqs as usize).map(move |i| unsafe {
            let span = &*raw.blocks.add(i);
            Scheduled {
                req: *raw.reqs.add(i),
                kind: match u32::from(*raw.kinds.add(i)) {
                    sys::QUIRE_STEP_NEW => Kind::New,
                    sys::QUIRE_STEP_RESUMED => Kind::Resumed,
                    _ => Kind::Running,
                },
                num_tokens: *raw.num_tokens.add(i),
                num_computed_tokens: *raw.num_computed_tokens.add(i),
                blocks: lent(span.ids, span.count as usize),
            }
        })
    }
}

/// What an update has made of a request's tokens.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    pub req: Req,
    pub user: usize,
    pub new_tokens: &'a [i32],
    /// `sys::QUIRE_FINISH_NONE` while it goes on.
    pub finish_reason: sys::quire_finish_reason,
    /// With the first token: prompt tokens that were in the prefix cache.
    pub num_cached: Option<u32>,
}

/// The scheduler. One thread at a time uses it.
pub struct Scheduler {
    sched: *mut sys::quire_sched,
    hasher: *mut sys::quire_hasher,
    /// Steps in flight and their requests: as many tokens must be given.
    in_flight: VecDeque<(u64, usize)>,
    not_shared: PhantomData<*mut ()>,
}

// Safety: the library has no state of a thread, but for the sentence of a refusal.
unsafe impl Send for Scheduler {}

impl Scheduler {
    pub fn new(config: &Config) -> Result<Scheduler> {
        let mut made =
            Scheduler { sched: ptr::null_mut(), hasher: ptr::null_mut(), in_flight: VecDeque::new(), not_shared: PhantomData };
        let mut hashing = sized!(quire_hasher_config);
        hashing.block_size = config.block_size;
        if !config.seed.is_empty() {
            hashing.seed = bytes(&config.seed);
        }
        // Safety: zeros are valid; what a pointer names lives until create has returned, which copies it.
        let mut group: sys::quire_group_config = unsafe { std::mem::zeroed() };
        group.spec.kind = sys::QUIRE_LAYER_FULL;
        if config.sliding_window > 0 {
            group.spec.kind = sys::QUIRE_LAYER_SLIDING_WINDOW;
            group.spec.sliding_window = config.sliding_window;
        }
        group.spec.block_size = config.block_size;
        group.spec.num_kv_heads = config.num_kv_heads;
        group.spec.head_size = config.head_size;
        group.spec.dtype = sys::QUIRE_DTYPE_BFLOAT16;
        let mut cache = sized!(quire_cache_config);
        cache.num_blocks = config.num_blocks;
        cache.groups = &group;
        cache.num_groups = 1;
        cache.max_model_len = config.max_model_len;
        let mut sched = sized!(quire_sched_config);
        sched.cache = &mut cache;
        sched.max_num_seqs = config.max_num_seqs;
        sched.max_num_batched_tokens = config.max_num_batched_tokens;
        sched.max_requests = config.max_requests;
        sched.profile = config.profile;
        sched.async_scheduling = if config.async_scheduling { sys::QUIRE_ON } else { sys::QUIRE_OFF };
        unsafe {
            check(sys::quire_hasher_create(&hashing, ptr::null(), &mut made.hasher))?;
            sched.hasher = made.hasher;
            check(sys::quire_sched_create(&sched, ptr::null(), &mut made.sched))?;
        }
        Ok(made)
    }

    /// For calls of [`sys`]. What they do to the scheduler is the caller's affair.
    pub fn as_ptr(&mut self) -> *mut sys::quire_sched {
        self.sched
    }

    pub fn add(&mut self, request: &Request<'_>) -> Result<Req> {
        let mut params = sized!(quire_request_params);
        params.id = bytes(request.id.as_bytes());
        params.prompt = request.prompt.as_ptr();
        params.num_prompt_tokens = length(request.prompt)?;
        params.max_tokens = request.max_tokens;
        params.stop_token_ids = request.stop_tokens.as_ptr();
        params.num_stop_token_ids = length(request.stop_tokens)?;
        params.priority = request.priority;
        params.arrival_time = request.arrival_time;
        params.cache_salt = bytes(request.cache_salt.as_bytes());
        params.user = request.user as *mut _;
        let mut req = 0;
        check(unsafe { sys::quire_sched_add(self.sched, &params, &mut req) })?;
        Ok(req)
    }

    /// Ends a request; one that has ended is skipped.
    pub fn abort(&mut self, req: Req) -> Result<()> {
        check(unsafe { sys::quire_sched_finish(self.sched, &req, 1, sys::QUIRE_REQ_FINISHED_ABORTED, ptr::null_mut()) })
    }

    pub fn schedule(&mut self) -> Result<Step<'_>> {
        let mut raw = ptr::null();
        check(unsafe { sys::quire_sched_schedule(self.sched, &mut raw) })?;
        let raw = unsafe { &*raw };
        self.in_flight.push_back((raw.step, raw.num_reqs as usize));
        Ok(Step { raw })
    }

    /// One token for each request of the step, in the step's order.
    pub fn update(&mut self, step: u64, sampled: &[i32]) -> Result<impl Iterator<Item = Output<'_>>> {
        let at = self.in_flight.iter().position(|each| each.0 == step);
        let wanted = at.map(|i| self.in_flight[i].1);
        if wanted.map_or(false, |count| count != sampled.len()) {
            let sentence = format!("invalid sampled: {} tokens (expected {})", sampled.len(), wanted.unwrap_or(0));
            return Err(Error { status: sys::QUIRE_E_ARGUMENT, sentence });
        }
        let mut output = sized!(quire_model_output);
        output.sampled = sampled.as_ptr();
        let mut raw = ptr::null();
        check(unsafe { sys::quire_sched_update(self.sched, step, &output, &mut raw) })?;
        at.map(|i| self.in_flight.remove(i));
        // Safety: outputs live until the next update, which the returned borrow keeps away.
        let outputs = unsafe { lent((*raw).outputs, (*raw).num_outputs as usize) };
        Ok(outputs.iter().map(|each| Output {
            req: each.req,
            user: each.user as usize,
            new_tokens: unsafe { lent(each.new_tokens, each.num_new_tokens as usize) },
            finish_reason: each.finish_reason,
            num_cached: (each.has_prefill_stats != 0).then(|| each.num_local_cached),
        }))
    }

    /// The output of this step will never come.
    pub fn forget_step(&mut self, step: u64) -> Result<()> {
        check(unsafe { sys::quire_sched_forget_step(self.sched, step) })?;
        self.in_flight.retain(|each| each.0 != step);
        Ok(())
    }

    pub fn find(&self, id: &str) -> Option<Req> {
        match unsafe { sys::quire_sched_find(self.sched, bytes(id.as_bytes())) } {
            0 => None,
            req => Some(req),
        }
    }

    /// What the request was added with; None if it does not exist.
    pub fn user(&self, req: Req) -> Option<usize> {
        let mut info = sized!(quire_req_info);
        let status = unsafe { sys::quire_sched_get_req_info(self.sched, req, &mut info) };
        check(status).ok().map(|()| info.user as usize)
    }

    pub fn counts(&self) -> sys::quire_sched_counts {
        unsafe { sys::quire_sched_get_counts(self.sched) }
    }

    /// A letter for each of the first `count` blocks: N null, A active, C cached, E empty.
    pub fn draw_blocks(&self, count: u32) -> Result<String> {
        let mut text = vec![0u8; count as usize + 1];
        check(unsafe {
            let pool = sys::quire_cache_get_pool(sys::quire_sched_get_cache(self.sched));
            sys::quire_pool_draw(pool, 0, count, text.as_mut_ptr().cast())
        })?;
        text.pop();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        unsafe {
            sys::quire_sched_destroy(self.sched);
            sys::quire_hasher_destroy(self.hasher);
        }
    }
}

fn length<T>(elements: &[T]) -> Result<u32> {
    u32::try_from(elements.len())
        .map_err(|_| Error { status: sys::QUIRE_E_RANGE, sentence: format!("{} elements (expected at most 4294967295)", elements.len()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> Scheduler {
        Scheduler::new(&Config { num_blocks: 100, max_model_len: 256, ..Config::default() }).unwrap()
    }

    #[test]
    fn a_refusal_names_the_field() {
        let why = Scheduler::new(&Config { max_model_len: 16, ..Config::default() }).err().unwrap();
        assert_eq!(why.status, sys::QUIRE_E_CONFIG);
        assert!(why.to_string().contains("num_blocks 0"), "{why}");
    }

    #[test]
    fn requests_are_computed() {
        let mut engine = engine();
        let req = engine.add(&Request { id: "a", prompt: &[5; 40], max_tokens: 3, user: 9, ..Request::default() }).unwrap();
        assert_eq!((engine.find("a"), engine.find("b"), engine.user(req), engine.user(req + 1)), (Some(req), None, Some(9), None));
        let again = engine.add(&Request { id: "a", prompt: &[5], ..Request::default() });
        assert_eq!(again.unwrap_err().status, sys::QUIRE_E_DUPLICATE);
        let mut tokens = Vec::new();
        while engine.counts().num_unfinished > 0 {
            let step = engine.schedule().unwrap();
            let each: Vec<_> = step.iter().collect();
            assert_eq!((each.len(), step.len(), step.preempted().len()), (1, 1, 0));
            assert_eq!(each[0].kind, if step.number() == 1 { Kind::New } else { Kind::Running });
            assert_eq!(each[0].blocks.len(), if step.number() == 1 { 3 } else { 0 });
            let number = step.number();
            assert_eq!(engine.update(number, &[]).err().unwrap().sentence, "invalid sampled: 0 tokens (expected 1)");
            for output in engine.update(number, &[7]).unwrap() {
                assert_eq!((output.user, output.num_cached), (9, (number == 1).then(|| 0)));
                tokens.extend_from_slice(output.new_tokens);
            }
            assert_eq!(engine.update(number, &[7]).err().unwrap().status, sys::QUIRE_E_ARGUMENT);
        }
        assert_eq!(tokens, [7, 7, 7]);
        assert_eq!(engine.schedule().unwrap().finished(), [req]);
        assert_eq!(engine.draw_blocks(2).unwrap().len(), 2);
    }

    #[test]
    fn steps_that_are_forgotten_and_aborted() {
        let mut engine = engine();
        let req = engine.add(&Request { id: "a", prompt: &[5; 20], ..Request::default() }).unwrap();
        let number = engine.schedule().unwrap().number();
        engine.forget_step(number).unwrap();
        assert_eq!(engine.forget_step(number).unwrap_err().status, sys::QUIRE_E_ARGUMENT);
        engine.abort(req).unwrap();
        assert_eq!(engine.counts().num_unfinished, 0);
        std::thread::spawn(move || drop(engine)).join().unwrap();
    }

    #[test]
    fn windows_and_steps_in_flight() {
        let config = Config { num_blocks: 100, max_model_len: 256, sliding_window: 32, async_scheduling: true, ..Config::default() };
        let mut engine = Scheduler::new(&config).unwrap();
        engine.add(&Request { id: "a", prompt: &[5; 20], max_tokens: 4, ..Request::default() }).unwrap();
        let first = engine.schedule().unwrap().number();
        let second = engine.schedule().unwrap().number();
        assert_eq!(engine.schedule().unwrap_err().status, sys::QUIRE_FULL);
        assert_eq!(engine.update(first, &[1]).unwrap().count(), 1);
        assert_eq!(engine.update(second, &[1]).unwrap().count(), 1);
    }
}
