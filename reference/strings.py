"""Strings that a byte-level BPE tokenizer trips over, made from a seed: for golden files and the tokenizer oracle."""

import random

SENTENCES = [
    "The Blue Spice is a family-friendly coffee shop near the river; it's cheap, isn't it?",
    "name[The Rice Boat], food[Fast food], priceRange[£20-25], customer rating[3 out of 5], area[city centre]",
    "They'd've said: \"We're here, I'm not, you'll see, he's gone, they've left\" - DON'T SHOUT, IT'S LATE.",
    "In der Straßenbahn saßen fünf ältere Männer, die über Äpfel, Öl und Übermut sprachen.",
    "Donaudampfschifffahrtsgesellschaftskapitän ist ein schönes, langes Wort.",
    "L'été dernier, j'ai mangé des crêpes à Besançon; ça coûtait 12,50 €.",
    "El niño comió piñas y bebió café. ¿Cuánto costó? ¡Nada!",
    "Съешь ещё этих мягких булочек, да выпей чаю.",
    "Το γρήγορο ζώο πηδάει πάνω από τον σκύλο.",
    "快速的狐狸跳过了懒狗。今天天气很好，我们去公园吧！",
    "吾輩は猫である。カタカナとひらがな、ﾊﾝｶｸも。",
    "다람쥐 헌 쳇바퀴에 타고파. 오늘은 날씨가 좋네요.",
    "اللغة العربية جميلة، أليس كذلك؟ مَرْحَبًا ١٢٣٤٥",
    "שלום עולם, מה שלומך היום?",
    "नमस्ते दुनिया, यह हिन्दी का एक वाक्य है। १२३",
    "สวัสดีชาวโลก วันนี้อากาศดี ๑๒๓",
    "def f(x):\n\treturn x**2 + 3*x - 1  # a comment\r\n\r\n\tif x != 0 && y >= 1e-5 { z[i] = 0xFF; }",
    "https://example.org/path?q=1&r=%20#top user.name+tag@mail.example",
    "1 22 333 4444 55555 3.14159 1,000,000 ½ ² ³ Ⅷ ٣ ४ 𝟜 ①",
    "Café, cafe\u0301, nai\u0308ve, Z\u0351\u036b\u0343a\u0334l\u0337g\u0321o, A\u030a",
]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "✈", "1️⃣", "🧑🏿‍🚀", "🫠", "☕️", "🍣"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028",
          "\ufeff", "\x0b", "\x0c", "\x85", "\x1c", "\u180e"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'x", "’s", "''s", " 's", "'", "s'"]
PUNCTUATION = list("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~")
PUNCTUATION += ["...", "--", "?!", "],", "„", "“", "«", "…", "—", "€", "£", "©"]
RANGES = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80), (0x1100, 0x1200),
          (0x2000, 0x2070), (0x20A0, 0x2C00), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xE000, 0xE100),
          (0xFE00, 0xFFFE), (0x10000, 0x10400), (0x1D400, 0x1D800), (0x1F300, 0x1FA00), (0x20000, 0x20100),
          (0xE0000, 0xE0080), (0x10FF00, 0x10FFFE)]
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>")  # tokenizers differ in whether text may name these


def _any_character(rng):
    while True:
        c = rng.randint(0, 0x10FFFF)
        if not 0xD800 <= c < 0xE000:  # a lone surrogate has no UTF-8
            return chr(c)


def _piece(rng, sentences):
    kind = rng.randrange(12)
    if kind < 3:  # words of a sentence
        words = rng.choice(sentences).split(" ")
        at = rng.randrange(len(words))
        return " ".join(words[at : at + rng.randint(1, 6)])
    if kind == 3:
        return rng.choice(EMOJI) * rng.randint(1, 3)
    if kind == 4:
        return rng.choice(SPACES) * rng.choice([1, 1, 2, 3, 7, rng.randint(1, 40)])
    if kind == 5:
        return rng.choice(CONTRACTIONS)
    if kind == 6:
        return rng.choice(PUNCTUATION) * rng.choice([1, 1, 1, 2, 5])
    if kind == 7:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 9)))
    if kind == 8:
        lo, hi = rng.choice(RANGES)
        return "".join(chr(rng.randrange(lo, hi)) for _ in range(rng.randint(1, 8)))
    if kind == 9:  # control characters
        return "".join(chr(rng.choice([rng.randrange(0, 32), 127, rng.randrange(128, 160)]))
                       for _ in range(rng.randint(1, 3)))
    if kind == 10:
        return rng.choice(sentences)[: rng.randint(1, 30)].swapcase()
    return rng.choice([" ", "", "\n"])


def strange(rng, sentences=SENTENCES):
    """One string; never a tokenizer's special token spelled out."""
    while True:
        kind = rng.randrange(10)
        if kind == 0:
            text = "".join(_any_character(rng) for _ in range(rng.randint(0, 20)))
        elif kind == 1:
            text = rng.randbytes(rng.randint(0, 30)).decode("latin-1")
        elif kind == 2:
            text = rng.randbytes(rng.randint(0, 30)).decode("utf-8", "replace")
        elif kind == 3:
            text = rng.choice(["", " "]) + rng.choice(sentences) + rng.choice(["", " ", "\n", "  \n "])
        elif kind == 4:  # long runs, where a quadratic merge loop or a wrong look-ahead shows
            text = rng.choice(["a", " ", "\n", "=", "1", " a", "ab", "é", "😀", " \t"]) * rng.randint(1, 120)
        else:
            text = "".join(_piece(rng, sentences) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 8)))
        if not any(s in text for s in SPECIALS):
            return text
