import { expect, test } from '@jest/globals'
import { Mirror } from '../../images/rag/mirror.ts'
import { best, bestAbove0, nearest } from '../../images/rag/top.ts'
import { codeOf, normalised, vectorIn } from '../../images/rag/vectors.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'
import { clusteredVectors } from '../support/rag/vectors.ts'

const dice = new Dice(seed)
// No multiple of 32: the last word of a code is not full.
const dimensions = 70
const vectors = clusteredVectors(400, { dimensions, clusters: 5, seed })

/** In how many dimensions the signs differ. */
const distance = (a: Float32Array, b: Float32Array): number =>
  a.reduce((sum, value, index) => sum + Number(value > 0 !== (b[index] as number) > 0), 0)

test('the mirror has the chunks that it was told of, after any changes, and scans them all', () => {
  const mirror = new Mirror(dimensions)
  const there = new Map<number, { document: number; vector: Float32Array }>()
  let last = 0
  for (let generation = 1; generation <= 200; generation++) {
    const document = dice.number(30)
    const own = [...there].filter(([, chunk]) => chunk.document === document).map(([id]) => id)
    const isDeletion = own.length > 0 && dice.chance(0.3)
    const removed = isDeletion ? own : own.filter(() => dice.chance(0.5))
    const added = isDeletion ? [] : Array.from({ length: dice.number(40) }, () => ++last)
    const given = added.map(() => dice.one(vectors))
    for (const id of removed) there.delete(id)
    for (const [index, id] of added.entries())
      there.set(id, { document, vector: given[index] as Float32Array })
    const codes = Uint32Array.from(given.flatMap((vector) => [...codeOf(vector)]))
    mirror.apply({ generation, removed, added, codes, document, metadata: isDeletion ? null : { document } })
  }
  expect(mirror.chunks).toBe(there.size)
  expect(mirror.chunks).toBeGreaterThan(100)

  const idsOf = (slots: number[]): number[] =>
    slots.map((slot) => mirror.idAt(slot)).toSorted((a, b) => a - b)
  for (const query of vectors.slice(0, 20)) {
    expect(idsOf(mirror.nearestTo(query, null, 10_000))).toEqual([...there.keys()].toSorted((a, b) => a - b))
    const distances = [...there].map(([id, { vector }]) => ({ id, far: distance(vector, query) }))
    const tenth = distances.map(({ far }) => far).toSorted((a, b) => a - b)[9] as number
    const near = distances.filter(({ far }) => far <= tenth).map(({ id }) => id)
    expect(idsOf(mirror.nearestTo(query, null, 10))).toEqual(near.toSorted((a, b) => a - b))
    const allowed = mirror.allowedBy(({ document }) => (document as number) < 10)
    const left = [...there].filter(([, { document }]) => document < 10).map(([id]) => id)
    expect(idsOf(mirror.nearestTo(query, allowed, 10_000))).toEqual(left.toSorted((a, b) => a - b))
  }
})

test('the best of many scores are those of a full sort', () => {
  for (const count of [1, 2, 10, 1_000]) {
    const scores = Float32Array.from({ length: 500 }, () => (dice.chance(0.3) ? 0 : dice.number(50)))
    const sorted = best(
      [...scores].map((score, slot) => ({ slot, score })).filter(({ score }) => score > 0),
      count,
    )
    expect(bestAbove0(scores, count)).toEqual(sorted)
  }
})

test('the nearest of nothing are none', () => {
  expect(nearest(new Uint16Array(0), 0, 64, 10)).toEqual([])
  expect(bestAbove0(new Float32Array(0), 10)).toEqual([])
})

test.each([1e-30, 1, 1e18])('a vector of the length %d has a direction', (length) => {
  const unit = normalised(Float32Array.of(3 * length, 4 * length))
  expect(unit?.[0]).toBeCloseTo(0.6)
  expect(unit?.[1]).toBeCloseTo(0.8)
})

test('a vector is read from bytes that begin anywhere', () => {
  const bytes = new Uint8Array(9)
  new DataView(bytes.buffer).setFloat32(1, 1.5, true)
  expect(vectorIn(bytes.subarray(1))).toEqual(Float32Array.of(1.5, 0))
  expect(vectorIn(bytes.subarray(2))).toBeNull()
})
