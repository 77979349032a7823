import { statfs } from 'node:fs/promises'

const lookEveryMs = 5_000
const levels = [0.85, 0.95]

/**
 * Tells when the disk of a folder is 85 and 95 % full, and when it has room again, in words. `isFuller`: it became so. Returns a
 * function that ends this.
 */
export function watchDisk(folder: string, tell: (words: string, isFuller: boolean) => void): () => void {
  let before = 0
  const look = async (): Promise<void> => {
    const { blocks, bfree, bavail } = await statfs(folder)
    const used = blocks - bfree
    const share = used / Math.max(1, used + bavail)
    const now = levels.filter((level) => share >= level).length
    if (now === before) return
    const percent = Math.floor(share * 100)
    tell(`the disk of ${folder} is ${percent} % full`, now > before)
    before = now
  }
  const timer = setInterval(() => void look().catch(() => {}), lookEveryMs).unref() // the folder may be gone
  void look().catch(() => {})
  return () => clearInterval(timer)
}
