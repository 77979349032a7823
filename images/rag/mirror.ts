import type { Change } from './changes.ts'
import type { Test } from './filter.ts'
import type { Metadata } from './store.ts'
import { nearest } from './top.ts'
import { codeOf, wordsFor } from './vectors.ts'

const firstSlots = 1_024
/** Beyond all distances: the chunk is not searched. */
const never = 0xffff
const bitsIn = countBits()

/** The chunks that a filter leaves: a byte for each slot. */
export type Allowed = Uint8Array

/**
 * What a search of a collection needs in memory: the sign code of each chunk, and the metadata of each document. Chunks are in
 * slots, without gaps; a removed chunk's slot is taken by the last one. Scans read the arrays from end to end.
 */
export class Mirror {
  generation = 0
  readonly #words: number
  #codes: Uint32Array
  /** Of each slot: the chunk's number in the file, and the place of its document. */
  #ids: Float64Array
  #documents: Uint32Array
  #distances: Uint16Array
  #length = 0
  readonly #slots = new Map<number, number>()
  /** Places of documents by their numbers in the file; places of removed documents are used again. */
  readonly #places = new Map<number, number>()
  readonly #metadata: (Metadata | null)[] = []
  readonly #freePlaces: number[] = []

  constructor(dimensions: number) {
    this.#words = wordsFor(dimensions)
    this.#codes = new Uint32Array(firstSlots * this.#words)
    this.#ids = new Float64Array(firstSlots)
    this.#documents = new Uint32Array(firstSlots)
    this.#distances = new Uint16Array(firstSlots)
  }

  get chunks(): number {
    return this.#length
  }

  get documents(): number {
    return this.#places.size
  }

  apply({ generation, removed, added, codes, document, metadata }: Change): void {
    for (const id of removed) this.#remove(id)
    if (metadata) this.putDocument(document, metadata)
    for (const [index, id] of added.entries())
      this.addChunk(id, document, codes.subarray(index * this.#words, (index + 1) * this.#words))
    if (!metadata) this.#removeDocument(document)
    this.generation = generation
  }

  putDocument(number: number, metadata: Metadata): void {
    const place = this.#places.get(number) ?? this.#freePlaces.pop() ?? this.#metadata.length
    this.#places.set(number, place)
    this.#metadata[place] = metadata
  }

  /** Its document is there. */
  addChunk(id: number, document: number, code: Uint32Array): void {
    if (this.#length === this.#ids.length) this.#grow()
    const slot = this.#length++
    this.#codes.set(code, slot * this.#words)
    this.#ids[slot] = id
    this.#documents[slot] = this.#places.get(document) as number
    this.#slots.set(id, slot)
  }

  idAt(slot: number): number {
    return this.#ids[slot] as number
  }

  /** Throws if the mirror lacks the chunk: file and mirror are of different generations. */
  slotOf(id: number): number {
    const slot = this.#slots.get(id)
    if (slot === undefined) throw new Error('the mirror lacks a chunk of the file')
    return slot
  }

  allowedBy(test: Test): Allowed {
    const verdicts = this.#metadata.map((metadata) => (metadata !== null && test(metadata) ? 1 : 0))
    const allowed = new Uint8Array(this.#length)
    for (let slot = 0; slot < this.#length; slot++)
      allowed[slot] = verdicts[this.#documents[slot] as number] as number
    return allowed
  }

  /** The slots of the chunks whose codes are nearest to the vector's: `count`, and those as near as the last. */
  nearestTo(vector: Float32Array, allowed: Allowed | null, count: number): number[] {
    const code = codeOf(vector)
    const [codes, distances, words] = [this.#codes, this.#distances, this.#words]
    for (let slot = 0, at = 0; slot < this.#length; slot++, at += words) {
      if (allowed && allowed[slot] === 0) {
        distances[slot] = never
        continue
      }
      let distance = 0
      for (let word = 0; word < words; word++) {
        const differing = (codes[at + word] as number) ^ (code[word] as number)
        distance += (bitsIn[differing & 0xffff] as number) + (bitsIn[differing >>> 16] as number)
      }
      distances[slot] = distance
    }
    return nearest(distances, this.#length, words * 32, count)
  }

  #remove(id: number): void {
    const slot = this.#slots.get(id)
    if (slot === undefined) return
    const last = --this.#length
    this.#codes.copyWithin(slot * this.#words, last * this.#words, (last + 1) * this.#words)
    this.#ids[slot] = this.#ids[last] as number
    this.#documents[slot] = this.#documents[last] as number
    this.#slots.set(this.idAt(slot), slot)
    this.#slots.delete(id)
    this.#codes.fill(0, last * this.#words, (last + 1) * this.#words)
  }

  #removeDocument(number: number): void {
    const place = this.#places.get(number)
    if (place === undefined) return
    this.#places.delete(number)
    this.#metadata[place] = null
    this.#freePlaces.push(place)
  }

  /** By half: less memory lies idle than with twice the room. */
  #grow(): void {
    const slots = Math.ceil(this.#ids.length * 1.5)
    const [codes, ids, documents] = [this.#codes, this.#ids, this.#documents]
    this.#codes = new Uint32Array(slots * this.#words)
    this.#codes.set(codes)
    this.#ids = new Float64Array(slots)
    this.#ids.set(ids)
    this.#documents = new Uint32Array(slots)
    this.#documents.set(documents)
    this.#distances = new Uint16Array(slots)
  }
}

/** How many bits of each 16-bit number are 1. A look-up takes two thirds of the time of counting. */
function countBits(): Uint8Array {
  const counts = new Uint8Array(2 ** 16)
  for (let value = 1; value < counts.length; value++)
    counts[value] = (counts[value >>> 1] as number) + (value & 1)
  return counts
}
