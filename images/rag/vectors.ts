// Vectors of length 1, and their sign codes: a bit for each dimension, 32 in a word, 1 for more than 0. The share of bits
// in which two codes differ estimates the angle between their vectors.

export const wordsFor = (dimensions: number): number => Math.ceil(dimensions / 32)

/** The vector with length 1. Null if it has a number that is not finite, or no direction. */
export function normalised(vector: Float32Array): Float32Array | null {
  let squares = 0
  for (const value of vector) squares += value * value
  // Of a float32's square the least is 1e-90: no underflow.
  if (!Number.isFinite(squares) || squares === 0) return null
  const length = Math.sqrt(squares)
  return vector.map((value) => value / length)
}

/** Writes the vector's sign code into `codes`, from the word `at` on. */
export function writeCode(vector: Float32Array, codes: Uint32Array, at: number): void {
  for (let word = 0; word * 32 < vector.length; word++) {
    let bits = 0
    const end = Math.min(32, vector.length - word * 32)
    for (let bit = 0; bit < end; bit++) if ((vector[word * 32 + bit] as number) > 0) bits |= 1 << bit
    codes[at + word] = bits
  }
}

export function codeOf(vector: Float32Array): Uint32Array {
  const code = new Uint32Array(wordsFor(vector.length))
  writeCode(vector, code, 0)
  return code
}

/** The cosine, for vectors of length 1. */
export function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0
  for (let index = 0; index < a.length; index++) sum += (a[index] as number) * (b[index] as number)
  return sum
}

/** The bytes of the vector, without a copy: float32, little-endian on every machine that runs this. */
export const bytesOf = (vector: Float32Array): Uint8Array =>
  new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength)

/** The vector in these bytes. Null if they are no whole number of values. */
export function vectorIn(bytes: Uint8Array): Float32Array | null {
  if (bytes.byteLength % 4) return null
  // Bytes of a pool may begin anywhere; a Float32Array has to begin at a multiple of 4.
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice()
  return new Float32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4)
}
