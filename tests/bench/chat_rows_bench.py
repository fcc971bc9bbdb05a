# SPDX-License-Identifier: Apache-2.0
"""Chat rows to ids and masks with transformers, for comparison with `bantam preprocess` on the same rows.

    pip install transformers==4.57.1
    python chat_rows_bench.py --make 100000 rows.jsonl
    python chat_rows_bench.py rows.jsonl MODEL TEMPLATE_training.jinja
    bantam preprocess --base-model MODEL --data rows.jsonl --type chat --chat-template TEMPLATE.jinja --num-threads 1
      --dataset-prepared-path none

MODEL is a folder with a tokenizer.json. The template for transformers has generation tags, without which it gives no mask.
Prints rows per second of processor time.
"""
import json
import pathlib
import random
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def make(count, path):
    rows = [json.loads(line)["messages"] for line in open(HERE.parents[1] / "recipes/data/quickstart_train.jsonl")]
    questions, answers = [r[0]["content"] for r in rows], [r[1]["content"] for r in rows]
    draw = random.Random(1)
    with open(path, "w") as out:
        for i in range(count):
            messages = []
            for _ in range(draw.choice([1, 1, 1, 2, 3])):
                messages.append({"role": "user", "content": f"{draw.choice(questions)} ({i})"})
                said = " ".join(draw.choice(answers) for _ in range(draw.choice([1, 2, 4])))
                messages.append({"role": "assistant", "content": said})
            out.write(json.dumps({"messages": messages}) + "\n")


def measure(rows, model, template, most=5000):
    from transformers import PreTrainedTokenizerFast
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(pathlib.Path(model) / "tokenizer.json"))
    tokenizer.chat_template = open(template).read()
    chats = [json.loads(line)["messages"] for line, _ in zip(open(rows), range(most))]
    start = time.process_time()
    for chat in chats:
        tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    print(f"{len(chats) / (time.process_time() - start):.0f} rows/s")


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(int(sys.argv[2]), sys.argv[3])
    else:
        measure(*sys.argv[1:4])
