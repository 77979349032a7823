// Values of compose files: durations, sizes, commands.

const unitsSec: Record<string, number> = { us: 1e-6, ms: 1e-3, s: 1, m: 60, h: 3600 }

/** `1m30s` → 90. Null: it is no duration. */
export function secondsOf(duration: string): number | null {
  const parts = [...duration.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h)/g)]
  if (parts.length === 0 || parts.map(([whole]) => whole).join('') !== duration) return null
  return parts.reduce((sum, [, count, unit = 's']) => sum + Number(count) * (unitsSec[unit] ?? 1), 0)
}

const unitsBytes: Record<string, number> = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 }

/** `512M`, `1.5gb` or a number of bytes, in MiB rounded up. Null: it is no size. */
export function mebibytesOf(size: string | number): number | null {
  const found = /^(\d+(?:\.\d+)?)\s*([bkmgt])?(?:i?b)?$/i.exec(String(size).trim())
  if (!found) return null
  const [, count, unit = 'b'] = found
  return Math.ceil((Number(count) * (unitsBytes[unit.toLowerCase()] ?? 1)) / 1024 ** 2)
}

/** The words of a command line, with quotes and backslashes as in a shell, which does not run. Null: a quote is open. */
export function wordsOf(line: string): string[] | null {
  const words: string[] = []
  let word: string | null = null
  let quote = ''
  for (let at = 0; at < line.length; at++) {
    const letter = line.charAt(at)
    if (quote) {
      if (letter === quote) quote = ''
      else if (letter === '\\' && quote === '"' && /["\\$`]/.test(line.charAt(at + 1)))
        word += line.charAt(++at)
      else word += letter
    } else if (letter === '"' || letter === "'") {
      quote = letter
      word ??= ''
    } else if (/\s/.test(letter)) {
      if (word !== null) words.push(word)
      word = null
    } else {
      word = (word ?? '') + (letter === '\\' ? line.charAt(++at) : letter)
    }
  }
  if (quote) return null
  if (word !== null) words.push(word)
  return words
}
