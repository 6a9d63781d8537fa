/** Reactions to a new question for the person: nothing may cover it, and the title shows it. */
interface PictureInPicture {
  window: Window | null;
}

/** Leave full screen and picture-in-picture, which could cover the page. */
export function uncover(): void {
  if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
  if (document.pictureInPictureElement) document.exitPictureInPicture().catch(() => {});
  (window as { documentPictureInPicture?: PictureInPicture }).documentPictureInPicture?.window?.close();
}

export function titleFor(pending: number, name: string): string {
  return pending > 0 ? `(${pending}) Approval needed · ${name}` : name;
}
