/** Vectors of random directions around random centres, as texts of several topics have them. `random` gives 0 to 1. */
export function clusteredVectors(
  count: number,
  { dimensions, clusters, random }: { dimensions: number; clusters: number; random: () => number },
): Float32Array[] {
  // Box and Muller's transform.
  const normal = (): number =>
    Math.sqrt(-2 * Math.log(random() + Number.MIN_VALUE)) * Math.cos(2 * Math.PI * random())
  const vector = (): Float32Array => Float32Array.from({ length: dimensions }, normal)
  const centres = Array.from({ length: clusters }, vector)
  return Array.from({ length: count }, () => {
    const centre = centres[Math.floor(random() * clusters)] as Float32Array
    return vector().map((value, index) => value + (centre[index] as number))
  })
}

const words = 30_000

/** A text of words, the n-th of which is 1 / n as frequent as the first, as in a language. */
export function zipfText(length: number, random: () => number): string {
  const word = (): string => `w${Math.floor(Math.exp(random() * Math.log(words))).toString(36)}x`
  return Array.from({ length }, word).join(' ')
}
