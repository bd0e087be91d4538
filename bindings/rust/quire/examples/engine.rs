//! The engine loop of examples/engine.c in Rust: the same requests, the same blocks.
use quire::{Config, Error, Kind, Request, Scheduler};

const NUM_BLOCKS: u32 = 20;
const MAX_RUNNING: u32 = 4;

struct Chat {
    name: &'static str,
    arrives: u64,
    prompt_tokens: usize,
    max_tokens: u32,
    num_new: usize,
    num_hit: u32,
    num_preempted: u32,
}

fn chat(name: &'static str, arrives: u64, prompt_tokens: usize, max_tokens: u32) -> Chat {
    Chat { name, arrives, prompt_tokens, max_tokens, num_new: 0, num_hit: 0, num_preempted: 0 }
}

fn arrive(engine: &mut Scheduler, chat: &Chat, user: usize) -> Result<(), Error> {
    let letter = i32::from(chat.name.as_bytes()[0]);
    let prompt: Vec<i32> = (0..24).map(|i| if i < 8 { i } else { letter * 100 + i }).collect(); // all begin alike
    let prompt = &prompt[..chat.prompt_tokens];
    engine.add(&Request { id: chat.name, prompt, max_tokens: chat.max_tokens, user, ..Request::default() })?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut engine = Scheduler::new(&Config {
        num_blocks: NUM_BLOCKS,
        block_size: 4,
        head_size: 64,
        max_model_len: 64,
        max_num_seqs: MAX_RUNNING,
        max_num_batched_tokens: 16, // of one step
        seed: b"engine".to_vec(),
        ..Config::default()
    })?;
    let mut chats = [chat("A", 1, 18, 20), chat("B", 1, 14, 16), chat("C", 3, 20, 14), chat("D", 5, 11, 9), chat("E", 6, 16, 8)];
    let (mut arrived, mut n) = (0, 1);
    while arrived < chats.len() || engine.counts().num_unfinished > 0 {
        while arrived < chats.len() && chats[arrived].arrives <= n {
            arrive(&mut engine, &chats[arrived], arrived)?;
            arrived += 1;
        }
        let step = engine.schedule()?;
        let number = step.number();
        let scheduled: Vec<_> = step.iter().map(|each| (each.req, each.kind, each.num_tokens)).collect();
        let sampled: Vec<i32> = // where a model would run
            step.iter().map(|each| 1000 + (each.num_computed_tokens + each.num_tokens) as i32).collect();
        let preempted = step.preempted().to_vec();
        print!("{number:3} ");
        for &(req, kind, num_tokens) in &scheduled {
            let mark = match kind {
                Kind::Running => ' ',
                Kind::New => '+',
                Kind::Resumed => '*',
            };
            print!("  {}{mark}{num_tokens:<2}", chats[engine.user(req).unwrap()].name);
        }
        let counts = engine.counts();
        print!("{:width$}", "", width = (MAX_RUNNING as usize - scheduled.len()) * 6);
        print!("   running {}  waiting {}   {}", counts.num_running, counts.num_waiting, engine.draw_blocks(NUM_BLOCKS)?);
        for req in preempted {
            let chat = &mut chats[engine.user(req).unwrap()];
            chat.num_preempted += 1;
            print!("  {} preempted", chat.name);
        }
        for output in engine.update(number, &sampled)? {
            let chat = &mut chats[output.user];
            chat.num_new += output.new_tokens.len();
            chat.num_hit = output.num_cached.unwrap_or(chat.num_hit); // with its first token
            if output.finish_reason != quire::sys::QUIRE_FINISH_NONE {
                print!("  {} ends", chat.name);
            }
        }
        println!();
        n += 1;
    }
    for c in &chats {
        println!(
            "{}: prompt {}, of which {} cached; {} new tokens; preempted {} times",
            c.name, c.prompt_tokens, c.num_hit, c.num_new, c.num_preempted
        );
    }
    Ok(())
}
