import type { Tokenizer } from '../documents.ts'
import { cuts } from './pieces.ts'

// Cuts a text that is too long for a chunk: between sentences, or words, or within a word if need be.

/**
 * Some tokenizers make one token of any long word, such as a picture in base64. A text of more than this for each token
 * is cut all the same, so that a chunk stays readable and below the store's 32,768 characters.
 */
const charactersPerToken = 16

export interface Part {
  text: string
  /** How good a cut before this part is. */
  cut: number
  /** Whether a blank is between this part and the one before. */
  isSpaced: boolean
  tokens: number
}

export const mostCharacters = (tokens: number): number => tokens * charactersPerToken

const sentences = new Intl.Segmenter(undefined, { granularity: 'sentence' })
// ICU copies the whole text for each segmentation: long ones are segmented by blocks.
const block = 20_000

/** Parts of at most `budget` tokens each; one part if the text is short enough. */
export function* partsOf(text: string, budget: number, tokenizer: Tokenizer): Generator<Part> {
  const whole = measured(text, budget, tokenizer)
  if (whole !== null) {
    yield { text, cut: cuts.sentence, isSpaced: true, tokens: whole }
    return
  }
  for (const sentence of sentencesOf(text)) {
    const tokens = measured(sentence.text, budget, tokenizer)
    if (tokens === null) yield* wordsOf(sentence, budget, tokenizer)
    else yield { ...sentence, cut: cuts.sentence, tokens }
  }
}

/** Null: more than the budget. Such a text is not counted if its length alone says so. */
function measured(text: string, budget: number, tokenizer: Tokenizer): number | null {
  if (text.length > mostCharacters(budget)) return null
  const tokens = tokenizer.countTokens(text)
  return tokens <= budget ? tokens : null
}

interface Sentence {
  text: string
  isSpaced: boolean
}

function* sentencesOf(text: string): Generator<Sentence> {
  let isSpaced = true
  for (let from = 0; from < text.length; ) {
    const some = text.slice(from, endOfBlock(text, from))
    from += some.length
    for (const { segment } of sentences.segment(some)) {
      const sentence = segment.trim()
      if (sentence) yield { text: sentence, isSpaced: isSpaced || /^\s/u.test(segment) }
      isSpaced = /\s$/u.test(segment)
    }
  }
}

/** At a blank, if there is one in the block's second half. */
function endOfBlock(text: string, from: number): number {
  if (from + block >= text.length) return text.length
  const blank = text.lastIndexOf(' ', from + block)
  return blank > from + block / 2 ? blank + 1 : wholeCharacters(text, from + block)
}

/** A sentence that is too long, by as many words as fit. */
function* wordsOf(
  { text: sentence, isSpaced }: Sentence,
  budget: number,
  tokenizer: Tokenizer,
): Generator<Part> {
  const words: { text: string; tokens: number }[] = []
  let tokens = 0
  let length = 0
  let cut: number = cuts.sentence

  /** Yields the words so far. Those that do not fit together after all stay. */
  function* part(): Generator<Part> {
    const rest: typeof words = []
    let text = words.map((word) => word.text).join(' ')
    let count = text ? tokenizer.countTokens(text) : 0
    while (count > budget && words.length > 1) {
      rest.unshift(words.pop() as (typeof words)[number])
      text = words.map((word) => word.text).join(' ')
      count = tokenizer.countTokens(text)
    }
    if (text) yield { text, cut, isSpaced: cut === cuts.word || isSpaced, tokens: count }
    if (text) cut = cuts.word
    words.splice(0, words.length, ...rest)
    tokens = rest.reduce((sum, word) => sum + word.tokens, 0)
    length = rest.reduce((sum, word) => sum + word.text.length + 1, 0)
  }

  for (const text of sentence.split(/\s+/u)) {
    const count = measured(text, budget, tokenizer)
    if (count === null) {
      while (words.length > 0) yield* part()
      for (const slice of slicesOf(text, budget, tokenizer)) {
        yield {
          ...slice,
          isSpaced: slice.isSpaced && (cut === cuts.word || isSpaced),
          cut: slice.isSpaced ? cut : cuts.word,
        }
        cut = cuts.word
      }
      continue
    }
    while (words.length > 0 && (tokens + count > budget || length + text.length > mostCharacters(budget)))
      yield* part()
    words.push({ text, tokens: count })
    tokens += count
    length += text.length + 1
  }
  while (words.length > 0) yield* part()
}

/** A word that is too long, or a text without blanks. */
function* slicesOf(word: string, budget: number, tokenizer: Tokenizer): Generator<Part> {
  for (let from = 0; from < word.length; ) {
    let length = Math.min(word.length - from, mostCharacters(budget))
    let slice = word.slice(from, wholeCharacters(word, from + length))
    let tokens = tokenizer.countTokens(slice)
    while (tokens > budget && length > 1) {
      // A little less than in proportion, so that few attempts are needed.
      length = Math.max(1, Math.min(length - 1, Math.floor(((length * budget) / tokens) * 0.95)))
      slice = word.slice(from, wholeCharacters(word, from + length))
      tokens = tokenizer.countTokens(slice)
    }
    yield { text: slice, cut: cuts.word, isSpaced: from === 0, tokens }
    from += slice.length
  }
}

/** The same end, or one later if that would cut a character in two. */
function wholeCharacters(text: string, end: number): number {
  const code = text.charCodeAt(end)
  return code >= 0xdc00 && code <= 0xdfff ? end + 1 : end
}
